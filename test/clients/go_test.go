//go:build clients

// The Go SDKs take minutes to compile, so this file needs a build tag.

package clients

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/anthropics/anthropic-sdk-go"
	anthropicoption "github.com/anthropics/anthropic-sdk-go/option"
	"github.com/google/go-cmp/cmp"
	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"
	"github.com/openai/openai-go/v3/responses"
)

const png = "iVBORw0KGgo="

// connections are those of a client, closed at the end of its test.
func connections(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestGoOpenAI(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client := openai.NewClient(option.WithBaseURL(b.url+"/v1"), option.WithAPIKey(b.key), option.WithMaxRetries(0), option.WithHTTPClient(connections(t)))
	for _, x := range backends {
		openaiChat(t, &client, x.name)
		openaiTools(t, &client, x.name)
		openaiResponses(t, &client, x.name)
	}
	hello := openai.ChatCompletionNewParams{Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")}}
	for model, status := range map[string]int{"nobody": 404, "limited": 429, "failing": 400} {
		params := hello
		params.Model = model
		_, err := client.Chat.Completions.New(t.Context(), params)
		var e *openai.Error
		if !errors.As(err, &e) || e.StatusCode != status || e.Message == "" {
			t.Errorf("%s: got %v, want status %d", model, err, status)
		}
	}
	for _, f := range faults() {
		params := hello
		params.Model = f.name
		text := ""
		stream := client.Chat.Completions.NewStreaming(t.Context(), params)
		for stream.Next() {
			for _, c := range stream.Current().Choices {
				text += c.Delta.Content
			}
		}
		f.check(t, text, stream.Err())
	}
	stalled := hello
	stalled.Model = "stalled"
	b.givesUp(t, func(ctx context.Context) error {
		_, err := client.Chat.Completions.New(ctx, stalled)
		return err
	})
	stream := client.Chat.Completions.NewStreaming(t.Context(), stalled)
	if !stream.Next() {
		t.Errorf("no event: %v", stream.Err())
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	b.check(t, 2)
}

// givesUp has a call to the stalled backend run into a timeout that is long enough for the backend to have the call.
func (b *bench) givesUp(t *testing.T, call func(ctx context.Context) error) {
	t.Helper()
	before := len(b.stalled.Requests())
	for timeout := 200 * time.Millisecond; len(b.stalled.Requests()) == before; timeout *= 2 {
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		err := call(ctx)
		cancel()
		if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("a silent backend: %v", err)
		}
	}
}

// check checks that a stream ended for the client as its fault requires.
func (f *fault) check(t *testing.T, text string, err error) {
	t.Helper()
	switch {
	case f.ends == whole && err != nil, f.ends == failed && err == nil:
		t.Errorf("%s: %v", f.name, err)
	case err == nil:
		equal(t, f.name, strings.TrimLeft(text, "x"), said)
	}
}

func openaiChat(t *testing.T, client *openai.Client, model string) {
	t.Helper()
	params := openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hello")}}
	reply := must[*openai.ChatCompletion](t)(client.Chat.Completions.New(t.Context(), params))
	equal(t, model, reply.Choices[0].Message.Content, said)
	if strings.Contains(reply.RawJSON(), "token_ids") {
		t.Errorf("%s: the agent sees token ids: %s", model, reply.RawJSON())
	}
	params.StreamOptions.IncludeUsage = openai.Bool(true)
	final := openaiStream(t, client, params)
	equal(t, model, final.Choices[0].Message.Content, said)
	equal(t, model, final.Usage.CompletionTokens, reply.Usage.CompletionTokens)

	image := openai.ChatCompletionContentPartImageImageURLParam{URL: "data:image/png;base64," + png}
	parts := []openai.ChatCompletionContentPartUnionParam{openai.TextContentPart("what is it?"), openai.ImageContentPart(image)}
	params = openai.ChatCompletionNewParams{Model: model, Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage(parts)}}
	reply = must[*openai.ChatCompletion](t)(client.Chat.Completions.New(t.Context(), params))
	equal(t, model, reply.Choices[0].Message.Content, "I see "+image.URL)
}

func openaiStream(t *testing.T, client *openai.Client, params openai.ChatCompletionNewParams) openai.ChatCompletion {
	t.Helper()
	var all openai.ChatCompletionAccumulator
	stream := client.Chat.Completions.NewStreaming(t.Context(), params)
	for stream.Next() {
		if !all.AddChunk(stream.Current()) {
			t.Errorf("%s: the accumulator refuses %s", params.Model, stream.Current().RawJSON())
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatalf("%s: %v", params.Model, err)
	}
	return all.ChatCompletion
}

func openaiTools(t *testing.T, client *openai.Client, model string) {
	t.Helper()
	look := openai.FunctionDefinitionParam{Name: "look", Parameters: openai.FunctionParameters{"type": "object", "properties": map[string]any{"city": map[string]any{"type": "string"}}}}
	ask := []openai.ChatCompletionMessageParamUnion{openai.UserMessage("the weather?")}
	params := openai.ChatCompletionNewParams{Model: model, Messages: ask, Tools: []openai.ChatCompletionToolUnionParam{openai.ChatCompletionFunctionTool(look)}}
	whole := *must[*openai.ChatCompletion](t)(client.Chat.Completions.New(t.Context(), params))
	for _, reply := range []openai.ChatCompletion{whole, openaiStream(t, client, params)} {
		var arguments []string
		for _, call := range reply.Choices[0].Message.ToolCalls {
			arguments = append(arguments, call.Function.Arguments)
		}
		equal(t, model, arguments, []string{`{"city": "Paris"}`, `{"city": "S\u00e3o Paulo"}`})
		equal(t, model, reply.Choices[0].FinishReason, "tool_calls")
	}
	m := whole.Choices[0].Message
	params.Messages = append(ask, m.ToParam(), openai.ToolMessage("sunny", m.ToolCalls[0].ID), openai.ToolMessage("wet", m.ToolCalls[1].ID))
	reply := must[*openai.ChatCompletion](t)(client.Chat.Completions.New(t.Context(), params))
	equal(t, model, reply.Choices[0].Message.Content, "It is sunny and wet")
}

func openaiResponses(t *testing.T, client *openai.Client, model string) {
	t.Helper()
	params := responses.ResponseNewParams{Model: model, Input: responses.ResponseNewParamsInputUnion{OfString: openai.String("hello")}}
	reply := must[*responses.Response](t)(client.Responses.New(t.Context(), params))
	equal(t, model, reply.OutputText(), said)
	stream := client.Responses.NewStreaming(t.Context(), params)
	text, last := "", ""
	for stream.Next() {
		event := stream.Current()
		if last = event.Type; last == "response.output_text.delta" {
			text += event.Delta
		}
	}
	if err := stream.Err(); err != nil {
		t.Fatalf("%s: %v", model, err)
	}
	equal(t, model, []string{text, last}, []string{said, "response.completed"})
}

func TestGoAnthropic(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	client := anthropic.NewClient(anthropicoption.WithBaseURL(b.url), anthropicoption.WithAPIKey(b.key), anthropicoption.WithMaxRetries(0), anthropicoption.WithHTTPClient(connections(t)))
	hello := []anthropic.MessageParam{anthropic.NewUserMessage(anthropic.NewTextBlock("hello"))}
	for _, x := range backends {
		anthropicMessages(t, &client, x.name)
	}
	for _, model := range []string{"vllm", "claude"} {
		count := must[*anthropic.MessageTokensCount](t)(client.Messages.CountTokens(t.Context(), anthropic.MessageCountTokensParams{Model: anthropic.Model(model), Messages: hello}))
		equal(t, model, count.InputTokens, int64(len("hello")))
	}
	for model, status := range map[string]int{"nobody": 404, "limited": 429, "failing": 400} {
		_, err := client.Messages.New(t.Context(), anthropic.MessageNewParams{Model: anthropic.Model(model), MaxTokens: 100, Messages: hello})
		var e *anthropic.Error
		if !errors.As(err, &e) || e.StatusCode != status {
			t.Errorf("%s: got %v, want status %d", model, err, status)
		}
	}
	for _, f := range faults() {
		text := ""
		stream := client.Messages.NewStreaming(t.Context(), anthropic.MessageNewParams{Model: anthropic.Model(f.name), MaxTokens: 100, Messages: hello})
		for stream.Next() {
			text += stream.Current().Delta.Text
		}
		f.check(t, text, stream.Err())
	}
	stalled := anthropic.MessageNewParams{Model: "stalled", MaxTokens: 100, Messages: hello}
	b.givesUp(t, func(ctx context.Context) error {
		_, err := client.Messages.New(ctx, stalled)
		return err
	})
	stream := client.Messages.NewStreaming(t.Context(), stalled)
	if !stream.Next() {
		t.Errorf("no event: %v", stream.Err())
	}
	if err := stream.Close(); err != nil {
		t.Error(err)
	}
	b.check(t, 2)
}

func anthropicMessages(t *testing.T, client *anthropic.Client, model string) {
	t.Helper()
	create := func(params anthropic.MessageNewParams) (both []anthropic.Message) {
		params.Model, params.MaxTokens = anthropic.Model(model), 100
		both = append(both, *must[*anthropic.Message](t)(client.Messages.New(t.Context(), params)))
		var all anthropic.Message
		stream := client.Messages.NewStreaming(t.Context(), params)
		for stream.Next() {
			if err := all.Accumulate(stream.Current()); err != nil {
				t.Fatalf("%s: %v", model, err)
			}
		}
		if err := stream.Err(); err != nil {
			t.Fatalf("%s: %v", model, err)
		}
		both = append(both, all)
		for _, reply := range both {
			if len(reply.Content) == 0 {
				t.Fatalf("%s: got %s", model, reply.RawJSON())
			}
		}
		return both
	}
	user := func(blocks ...anthropic.ContentBlockParamUnion) anthropic.MessageParam {
		return anthropic.NewUserMessage(blocks...)
	}
	for _, reply := range create(anthropic.MessageNewParams{Messages: []anthropic.MessageParam{user(anthropic.NewTextBlock("hello"))}}) {
		equal(t, model, []string{reply.Content[0].Text, string(reply.StopReason)}, []string{said, "end_turn"})
	}
	for _, reply := range create(anthropic.MessageNewParams{Messages: []anthropic.MessageParam{user(anthropic.NewTextBlock("what is it?"), anthropic.NewImageBlockBase64("image/png", png))}}) {
		equal(t, model, reply.Content[0].Text, "I see data:image/png;base64,"+png)
	}
	look := anthropic.ToolUnionParamOfTool(anthropic.ToolInputSchemaParam{Properties: map[string]any{"city": map[string]any{"type": "string"}}}, "look")
	ask := anthropic.MessageNewParams{Messages: []anthropic.MessageParam{user(anthropic.NewTextBlock("the weather?"))}, Tools: []anthropic.ToolUnionParam{look}}
	for _, reply := range create(ask) {
		if len(reply.Content) != 3 || reply.StopReason != "tool_use" {
			t.Fatalf("%s: got %s", model, reply.RawJSON())
		}
		next := ask
		next.Messages = append(ask.Messages[:1:1], reply.ToParam(), user(anthropic.NewToolResultBlock(reply.Content[1].ID, "sunny", false), anthropic.NewToolResultBlock(reply.Content[2].ID, "wet", false)))
		for _, end := range create(next) {
			equal(t, model, end.Content[0].Text, "It is sunny and wet")
		}
	}
}
