package anthropic_test

import (
	"testing"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/anthropic"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/go-json-experiment/json/jsontext"
)

func isJSON(doc []byte) bool { return jsontext.Value(doc).IsValid(rawjson.Options()) }

// FuzzRequests: whatever is asked, nothing panics, and what is asked of the
// backend is JSON.
func FuzzRequests(f *testing.F) {
	f.Add([]byte(messagesRequest))
	f.Add([]byte(chatRequest))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, translate := range []func([]byte) ([]byte, error){
			func(b []byte) ([]byte, error) { return anthropic.ToChat(b, anthropic.ChatOptions{}) },
			anthropic.FromChat, anthropic.ToTokenize,
		} {
			if out, err := translate(body); err == nil && !isJSON(out) {
				t.Fatalf("%s became %s", body, out)
			}
		}
	})
}

// FuzzReplies: whatever a backend says, whole or as an event, nothing panics, and
// the agent is told JSON.
func FuzzReplies(f *testing.F) {
	for _, datas := range chatStreams {
		f.Add([]byte(datas[0]), []byte(datas[len(datas)-1]))
	}
	f.Add([]byte(messageStreams["everything"][0]), []byte(messageStreams["everything"][1]))
	f.Fuzz(func(t *testing.T, first, second []byte) {
		for _, to := range []translator{&anthropic.ChatReply{}, &anthropic.MessageReply{Usage: true}} {
			if out, err := to.Reply(nil, first); err == nil && !isJSON(out) {
				t.Fatalf("%s became %s", first, out)
			}
			out, err := to.Event(nil, first)
			if err == nil {
				out, err = to.Event(out, second)
			}
			if err == nil {
				out, _ = to.End(out)
			}
			var events openai.Events
			events.Write(out)
			for event := events.Next(); event != nil; event = events.Next() {
				if data := openai.Data(event); data != nil && string(data) != "[DONE]" && !isJSON(data) {
					t.Fatalf("%s and %s became %s", first, second, out)
				}
			}
		}
		var a anthropic.Accumulator
		a.Add(first)
		a.Add(second)
		if out := a.AppendJSON(nil); isJSON(first) && isJSON(second) && !isJSON(out) {
			t.Fatalf("%s and %s accumulated to %s", first, second, out)
		}
	})
}
