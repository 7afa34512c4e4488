package pretrained

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
)

// scripted is a sampling client with one reply.
type scripted struct {
	reply  []int32
	prompt []int32
}

func (s *scripted) Spec() tinker.ModelSpec { return tinker.ModelSpec{Context: 10_000} }

func (s *scripted) Sample(_ context.Context, p tinker.SampleParams) (tinker.SampleResult, error) {
	s.prompt = p.Prompt
	return tinker.SampleResult{Sequences: []tinker.Sequence{{Tokens: s.reply, Logprobs: make([]float32, len(s.reply)), StopReason: tinker.StopToken}}}, nil
}

// serve returns a server with one scripted model.
func serve(t *testing.T, m *Model, text string) (*chat.Server, *scripted) {
	t.Helper()
	s, err := chat.NewServer(chat.Config{
		Tokenizer: m.Tokenizer(), Renderer: m,
		Now: func() time.Time { return time.Unix(0, 0) }, NewID: func() string { return "id" },
	})
	if err != nil {
		t.Fatal(err)
	}
	client := &scripted{reply: sampled(t, m, text)}
	s.SetModel("m", chat.Model{Client: client})
	return s, client
}

func post(s *chat.Server, body string) string {
	w := httptest.NewRecorder()
	s.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(body)))
	return w.Body.String()
}

const (
	thoughtfulReply = "<think>\nhm\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\":  1}}\n</tool_call><|im_end|>"
	ask             = `{"model":"m","messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","function":{"name":"f"}}],"return_token_ids":true`
)

type wireChoice struct {
	Message  wireMessage `json:"message"`
	Delta    wireMessage `json:"delta"`
	Finish   string      `json:"finish_reason"`
	TokenIDs []int32     `json:"token_ids"`
}

type wireMessage struct {
	Content   string          `json:"content"`
	Reasoning string          `json:"reasoning_content"`
	ToolCalls []chat.ToolCall `json:"tool_calls"`
}

// A server returns reasoning, content and calls, with the ids that were sampled.
func TestServer(t *testing.T) {
	t.Parallel()
	m := model(t, hermes, Config{})
	s, client := serve(t, m, thoughtfulReply)
	var reply struct {
		Choices  []wireChoice `json:"choices"`
		TokenIDs []int32      `json:"prompt_token_ids"`
	}
	if err := json.Unmarshal([]byte(post(s, ask+"}")), &reply); err != nil {
		t.Fatal(err)
	}
	got := reply.Choices[0]
	if got.Message.Reasoning != "hm" || got.Message.Content != "I look." || len(got.Message.ToolCalls) != 1 || got.Finish != "tool_calls" {
		t.Errorf("%+v", got)
	}
	if diff := cmp.Diff(client.reply, got.TokenIDs); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(client.prompt, reply.TokenIDs); diff != "" {
		t.Error(diff)
	}

	// The agent goes on in the OpenAI form, content null as the SDKs send it.
	answer, err := json.Marshal(got.Message.ToolCalls)
	if err != nil {
		t.Fatal(err)
	}
	body := `{"model":"m","messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":null,"tool_calls":` + string(answer) + `},{"role":"tool","content":"ok","tool_call_id":"x"}]}`
	post(s, body)
	if text := m.Tokenizer().Decode(client.prompt); !strings.Contains(text, `{"name": "f", "arguments": {"a":  1}}`) {
		t.Errorf("the arguments are not as they were written: %q", text)
	}
}

// A streamed reply says the same in parts. Each token is in one chunk.
func TestServerStreams(t *testing.T) {
	t.Parallel()
	s, client := serve(t, model(t, hermes, Config{}), thoughtfulReply)
	var all wireMessage
	var ids []int32
	finish, chunks := "", 0
	for event := range strings.SplitSeq(post(s, ask+`,"stream":true}`), "\n\n") {
		data := strings.TrimPrefix(event, "data: ")
		if data == "" || data == "[DONE]" {
			continue
		}
		var chunk struct {
			Choices []wireChoice `json:"choices"`
		}
		if err := json.Unmarshal([]byte(data), &chunk); err != nil {
			t.Fatal(err)
		}
		c := chunk.Choices[0]
		if strings.ContainsAny(c.Delta.Content+c.Delta.Reasoning, "<>") {
			t.Errorf("a part of a tag came through: %s", data)
		}
		all.Content += c.Delta.Content
		all.Reasoning += c.Delta.Reasoning
		all.ToolCalls = append(all.ToolCalls, c.Delta.ToolCalls...)
		ids = append(ids, c.TokenIDs...)
		finish += c.Finish
		chunks++
	}
	if all.Content != "I look." || all.Reasoning != "hm" || len(all.ToolCalls) != 1 || finish != "tool_calls" || chunks < 8 {
		t.Errorf("%+v, %s, %d chunks", all, finish, chunks)
	}
	if diff := cmp.Diff(client.reply, ids); diff != "" {
		t.Error(diff)
	}
}

// Variables of a request decide whether the prompt begins the reasoning, and so where the reply begins.
func TestServerReasoningByVariables(t *testing.T) {
	t.Parallel()
	const always, asked = "<think>\n{% if enable_thinking is false %}\n</think>\n\n{% endif %}", "{% if enable_thinking %}<think>\n{% endif %}{# </think> #}"
	const thought = "hm\n</think>\n\nYes.<|im_end|>"
	for _, c := range []struct{ begin, variables, reply, reasoning, content string }{
		{always, "null", thought, "hm", "Yes."},
		{always, `{"enable_thinking":true}`, "hm<|im_end|>", "hm", ""},
		{always, `{"enable_thinking":false}`, "Yes.<|im_end|>", "", "Yes."},
		{asked, "null", "Yes.<|im_end|>", "", "Yes."},
		{asked, `{"enable_thinking":true}`, thought, "hm", "Yes."},
	} {
		template := "{% for m in messages %}<|im_start|>{{ m.content }}<|im_end|>{% endfor %}{% if add_generation_prompt %}<|im_start|>" + c.begin + "{% endif %}"
		s, _ := serve(t, model(t, template, Config{}), c.reply)
		for _, streamed := range []string{"false", "true"} {
			answer := post(s, `{"model":"m","messages":[{"role":"user","content":"Hi"}],"chat_template_kwargs":`+c.variables+`,"stream":`+streamed+"}")
			var reasoning, content string
			for line := range strings.SplitSeq(answer, "\n\n") {
				data := strings.TrimPrefix(line, "data: ")
				if data == "" || data == "[DONE]" {
					continue
				}
				var part struct {
					Choices []wireChoice `json:"choices"`
				}
				if err := json.Unmarshal([]byte(data), &part); err != nil {
					t.Fatal(err)
				}
				reasoning += part.Choices[0].Message.Reasoning + part.Choices[0].Delta.Reasoning
				content += part.Choices[0].Message.Content + part.Choices[0].Delta.Content
			}
			if reasoning != c.reasoning || content != c.content {
				t.Errorf("%q with %s, streamed %s: %q is %q and %q, want %q and %q", c.begin, c.variables, streamed, c.reply, reasoning, content, c.reasoning, c.content)
			}
		}
	}
}

// Variables of a request reach the template.
func TestServerVariables(t *testing.T) {
	t.Parallel()
	m := model(t, hermes, Config{})
	s, client := serve(t, m, "ok<|im_end|>")
	post(s, ask+`,"chat_template_kwargs":{"enable_thinking":false}}`)
	if text := m.Tokenizer().Decode(client.prompt); !strings.HasSuffix(text, "</think>\n\n") {
		t.Errorf("%q", text)
	}
}
