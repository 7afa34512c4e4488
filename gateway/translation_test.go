package gateway_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/agl-go/agl/gateway"
	"github.com/agl-go/agl/internal/rawjson"
)

const (
	responsesPath = "/proxy/rollout/r/attempt/0/mode/train/openai/v1/responses"
	messagesPath  = "/proxy/rollout/r/attempt/0/mode/train/anthropic/v1/messages"
)

// Calls of the two other APIs reach the backend as chat completions with the trainer's
// temperature, and give the trainer the same triplets; their agents get their own form.
func TestTranslate(t *testing.T) {
	t.Parallel()
	const whole = `{"id":"c","object":"chat.completion","model":"m","prompt_token_ids":[1,2],"choices":[{"index":0,"finish_reason":"stop","token_ids":[3,4],"logprobs":{"content":[{"logprob":-1},{"logprob":-2}]},"message":{"role":"assistant","content":"hi"}}],"usage":{"prompt_tokens":2,"completion_tokens":2,"total_tokens":4}}`
	kind, reply, status := "application/json", whole, 200
	var asked []byte
	c := open(t, gateway.Config{Model: "m", Streams: true, Translate: true, Transport: transport(func(r *http.Request) (*http.Response, error) {
		body, err := io.ReadAll(r.Body)
		if asked = body; r.URL.String() != "http://b/v1/chat/completions" {
			t.Errorf("the backend was asked for %s", r.URL)
		}
		return answer(status, kind, reply), err
	})})
	c.create("r")
	c.must("POST", "/api/models", `[{"model":"m","endpoint":"http://b/v1"}]`)
	for name, call := range map[string]struct{ path, body, part, streamed, end string }{
		"responses": {responsesPath, `{"input":"hello"`, `"text":"hi"`, "event: response.output_text.delta", "event: response.completed"},
		"messages":  {messagesPath, `{"max_tokens":9,"messages":[{"role":"user","content":"hello"}]`, `"content":[{"type":"text","text":"hi"`, "event: content_block_delta", "event: message_stop"},
	} {
		kind, reply = "application/json", whole
		before := len(c.events("?format=triplet&dedupe=none"))
		w := c.send("POST", call.path, call.body+"}")
		if w.Code != 200 || !strings.Contains(w.Body.String(), call.part) {
			t.Errorf("%s: got %d %s", name, w.Code, w.Body)
		}
		if temperature, _ := rawjson.Get(asked, "temperature"); string(temperature) != "1.0" {
			t.Errorf("%s: the backend got %s", name, asked)
		}
		// Backends that stream, with and without [DONE], and one that answers in one piece.
		undone, _, _ := strings.Cut(chunks, "data: [DONE]")
		for _, answer := range [][2]string{{"text/event-stream", chunks}, {"text/event-stream", undone}, {"application/json", whole}} {
			kind, reply = answer[0], answer[1]
			w = c.send("POST", call.path, call.body+`,"stream":true}`)
			got := w.Body.String()
			if w.Code != 200 || !strings.Contains(got, call.streamed) || strings.Count(got, call.end) != 1 || strings.Contains(got, "[DONE]") {
				t.Errorf("%s from %s: got %d %s", name, kind, w.Code, got)
			}
			if got := w.Header().Get("Content-Type"); got != "text/event-stream; charset=utf-8" {
				t.Errorf("%s from %s: got the type %q", name, kind, got)
			}
		}
		all := c.events("?format=triplet&dedupe=none")
		if len(all) != before+4 {
			t.Fatalf("%s: got %d triplets", name, len(all)-before)
		}
		for _, triplet := range all[before:] {
			if !strings.HasPrefix(triplet, `{"prompt_token_ids":[1,2],"response_token_ids":[3,4],"response_log_probs":[-1,-2]`) {
				t.Errorf("%s: got %s", name, triplet)
			}
		}
		kind, reply, status = "application/json", `{"error":{"message":"too long"}}`, 400
		if w := c.send("POST", call.path, call.body+"}"); w.Code != 400 || !strings.Contains(w.Body.String(), "too long") {
			t.Errorf("%s, an error: got %d %s", name, w.Code, w.Body)
		}
		kind, reply, status = "application/json", `{"odd":1}`, 200
		if w := c.send("POST", call.path, call.body+"}"); w.Code != 502 {
			t.Errorf("%s, no completion: got %d %s", name, w.Code, w.Body)
		}
	}
	if w := c.send("POST", responsesPath, `{"input":7}`); w.Code != 400 || !strings.Contains(w.Body.String(), "input: got 7, must be a string or a list of items") {
		t.Errorf("a wrong input: got %d %s", w.Code, w.Body)
	}
	c.want("POST", strings.Replace(responsesPath, "openai", "anthropic", 1), `{}`, 404, `{"detail":"Unsupported upstream path: responses"}`)

	plain := open(t, gateway.Config{Model: "m"})
	plain.create("r")
	plain.want("POST", responsesPath, `{}`, 404, `{"detail":"Unsupported upstream path: responses"}`)
	plain.want("POST", messagesPath, `{}`, 404, `{"detail":"Not Found"}`)
}

func TestCancel(t *testing.T) {
	t.Parallel()
	c := open(t, gateway.Config{})
	c.create("r")
	for range 2 { // what has ended stays as it is
		status, _ := rawjson.Get(c.must("POST", "/api/rollouts/r/cancel", ""), "status")
		state, _ := rawjson.Get(status, "state")
		message, _ := rawjson.Get(status, "error_message")
		if string(state)+string(message) != `"failed""cancelled"` {
			t.Errorf("got %s", status)
		}
	}
	c.want("GET", "/api/rollouts/terminal", "", 200, `{"items":[{"rollout_id":"r","state":"failed","data_id":"d-r","is_train":true}],"next_after":1,"total_terminal":1}`)
	c.want("POST", "/api/rollouts/x/cancel", "", 404, `{"detail":"Rollout not found: x"}`)
}
