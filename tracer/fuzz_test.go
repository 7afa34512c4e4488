package tracer

import (
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/record"
)

// Whatever a model answers, the span of the call can be made.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"choices":[{"index":0,"message":{"role":"assistant","content":"x"},"token_ids":[1]}]}`), false)
	f.Add([]byte("data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":3,\"function\":{\"arguments\":\"{\"}}]}}]}\n\ndata: [DONE]\n\n"), true)
	f.Add([]byte("{\"id\":\"\xff\\ud800\",\"a\":1,\"a\":[1,\"x\"]}"), false)
	f.Fuzz(func(t *testing.T, body []byte, streamed bool) {
		for _, form := range []record.Form{record.Chat, record.Completion, record.Responses, record.Messages} {
			fuzzReply(t, form, body, streamed)
		}
	})
}

func fuzzReply(t *testing.T, form record.Form, body []byte, streamed bool) {
	t.Helper()
	reply, _ := parseReply(form, body, streamed)
	attrs := append(requestAttrs(form, body), reply.attrs()...)
	for _, call := range reply.toolCalls() {
		attrs = append(attrs, call.spanAttrs()...)
	}
	made, err := agl.NewAttributes(attrs...)
	if err != nil {
		t.Fatalf("attributes are rejected: %v", err)
	}
	var back agl.Attributes
	if err := rawjson.Unmarshal(made, &back); err != nil {
		t.Fatalf("attributes do not read back: %v", err)
	}
}
