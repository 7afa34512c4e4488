package proxytest_test

import (
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// model thinks, says something and calls two tools.
func model(_ proxytest.Prompt, choice int) proxytest.Answer {
	return proxytest.Answer{
		Reasoning: "h", Text: "é" + strings.Repeat("!", choice),
		Calls: []proxytest.Call{{Name: "look", Arguments: "{}"}},
	}
}

// What each server sends is written down, a whole reply and a stream of each of
// its endpoints, to be read against the documentation of the APIs.
func TestWireGolden(t *testing.T) {
	t.Parallel()
	const (
		chat       = `"messages":[{"role":"user","content":"a"}],"logprobs":true`
		completion = `"prompt":"a","logprobs":1`
		ids        = `,"return_token_ids":true`
		usage      = `,"stream_options":{"include_usage":true}`
	)
	header := http.Header{"X-Api-Key": {"k"}, "Anthropic-Version": {"2023-06-01"}}
	for name, server := range map[string]struct {
		script proxytest.Script
		asked  [][2]string // path and body
	}{
		"vllm":      {proxytest.Model(model).VLLM(), [][2]string{{"/v1/chat/completions", chat + ids + `,"n":2`}, {"/v1/completions", completion + ids}, {"/tokenize", chat}}},
		"oldvllm":   {proxytest.Model(model).OldVLLM(), [][2]string{{"/v1/chat/completions", chat + ids + `,"n":2`}}},
		"sglang":    {proxytest.Model(model).SGLang(), [][2]string{{"/v1/chat/completions", chat + ids}, {"/v1/completions", completion + ids}}},
		"openai":    {proxytest.Model(model).OpenAI(), [][2]string{{"/v1/chat/completions", chat}, {"/v1/chat/completions", chat + ids}, {"/v1/completions", completion}, {"/v1/responses", `"input":"a"`}, {"/v1/embeddings", `"input":"a"`}}},
		"anthropic": {proxytest.Model(model).Anthropic(), [][2]string{{"/v1/messages", `"max_tokens":5,"messages":[{"role":"user","content":"a"}]`}, {"/v1/messages/count_tokens", `"messages":[{"role":"user","content":"a"}]`}, {"/v1/messages", `"messages":[]`}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []byte
			for _, asked := range server.asked {
				for _, stream := range []string{"", `,"stream":true` + usage} {
					body := `{"model":"m",` + asked[1] + stream + `}`
					reply := server.script(t.Context(), proxytest.Request{Method: http.MethodPost, Path: asked[0], Header: header, Body: []byte(body)})
					got = fmt.Appendf(got, "# %s %s\n# %d %s\n%s%s\n", asked[0], body, reply.Status, reply.ContentType, reply.Body, strings.Join(reply.Pieces, ""))
				}
			}
			path := filepath.Join("testdata", name+".golden.txt")
			if *update {
				if err := os.WriteFile(path, got, 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", path, diff)
			}
		})
	}
}
