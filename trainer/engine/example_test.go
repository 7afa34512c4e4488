package engine_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/openai/openai-go/v3"
	"github.com/openai/openai-go/v3/option"

	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/trainer/engine"
)

// A small model learns one conversation by heart, and answers as a chat model. An
// algorithm trains it through e.Service, and swaps what is served through e.Publisher.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "engine")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	conversations := filepath.Join(dir, "demos.jsonl")
	line := `{"messages":[{"role":"user","content":"hi"},{"role":"assistant","content":"ho"}]}` + "\n"
	if err := os.WriteFile(conversations, []byte(strings.Repeat(line, 8)), 0o600); err != nil {
		fmt.Println(err)
		return
	}
	e, err := engine.NewPolicy(engine.PolicyConfig{Policy: policy.Config{Context: 16, Layers: 1, Dim: 16, Heads: 1, FF: 16}, Characters: "hio "})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer e.Close(ctx)
	weights, err := e.WarmStart(ctx, engine.WarmStart{Path: conversations, Steps: 100, Batch: 8})
	if err == nil {
		err = e.Serve(ctx, weights, "v1") // agents ask for e.Model().Name, and the proxy for a version
	}
	if err != nil {
		fmt.Println(err)
		return
	}
	client := openai.NewClient(option.WithBaseURL(e.Model().BaseURL), option.WithAPIKey("none"), option.WithHTTPClient(&http.Client{Transport: e.Transport(nil)}))
	reply, err := client.Chat.Completions.New(ctx, openai.ChatCompletionNewParams{
		Model: "v1", Messages: []openai.ChatCompletionMessageParamUnion{openai.UserMessage("hi")}, Temperature: openai.Float(0),
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(reply.Choices[0].Message.Content)
	// Output: ho
}
