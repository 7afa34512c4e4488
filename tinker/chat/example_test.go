package chat_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
)

// parrot is a sampling client that always answers the same.
type parrot struct{ reply []int32 }

func (p parrot) Spec() tinker.ModelSpec { return tinker.ModelSpec{Name: "parrot", Context: 48} }

func (p parrot) Sample(context.Context, tinker.SampleParams) (tinker.SampleResult, error) {
	return tinker.SampleResult{Sequences: []tinker.Sequence{
		{Tokens: p.reply, Logprobs: make([]float32, len(p.reply)), StopReason: tinker.StopToken},
	}}, nil
}

// Serve chat completions over a sampler of tokens.
func Example() {
	tok, err := chat.NewCharacters("")
	if err != nil {
		fmt.Println(err)
		return
	}
	s, err := chat.NewServer(chat.Config{Tokenizer: tok, Renderer: chat.NewRoleMarks(tok), NewID: func() string { return "chatcmpl-1" }})
	if err != nil {
		fmt.Println(err)
		return
	}
	reply, err := tok.Encode("84")
	if err != nil {
		fmt.Println(err)
		return
	}
	s.SetModel("policy", chat.Model{Client: parrot{append(reply, tok.Mark(chat.MarkEnd))}, Version: "step-1"})

	r := httptest.NewRequestWithContext(context.Background(), http.MethodPost, "/v1/chat/completions",
		strings.NewReader(`{"model":"policy","messages":[{"role":"user","content":"12*7?"}],"return_token_ids":true}`))
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	_, choices, _ := strings.Cut(w.Body.String(), `"choices":`)
	fmt.Println(choices)
	// Output:
	// [{"index":0,"message":{"role":"assistant","content":"84","refusal":null},"logprobs":null,"finish_reason":"stop","token_ids":[9,5,47]}],"usage":{"prompt_tokens":7,"completion_tokens":3,"total_tokens":10},"system_fingerprint":"step-1","prompt_token_ids":[44,2,3,39,8,42,45]}
}
