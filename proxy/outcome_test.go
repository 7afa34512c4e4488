package proxy_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/record"
)

// A program's runner does not see its calls: whether a call or the agent is to
// blame for what comes after it is on the call's record.
func TestOutcomeOnRecord(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		status int // of the backend; 0 is one that cannot be reached
		reply  string
		body   string
		want   string
	}{
		"fine":                {200, `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}`, hello, ""},
		"broken":              {500, `{"error":{"message":"out of memory"}}`, hello, "model_error"},
		"busy":                {429, `{"error":{"message":"later"}}`, hello, "model_error"},
		"too long":            {400, `{"error":{"message":"This model's maximum context length is 8 tokens."}}`, hello, "context_overflow"},
		"malformed":           {400, `{"error":{"message":"temperature: must not be negative"}}`, hello, ""},
		"elsewhere":           {308, "moved", hello, "model_error"},
		"not JSON":            {200, `{}`, `{`, ""},
		"HTML":                {200, `<html>gateway</html>`, hello, "model_error"},
		"half":                {200, `{"id":"c","choices":[`, hello, "model_error"},
		"empty":               {200, "", hello, "model_error"},
		"away":                {0, "", hello, "model_error"},
		"no status":           {99, `{}`, hello, "model_error"},
		"switches":            {101, "", hello, "model_error"},
		"in stream":           {200, ":\n\n" + `data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\n" + `data: {"error":{"message":"out of memory"}}` + "\n\n", streamed(hello), "model_error"},
		"malformed in stream": {200, ":\n\n" + `data: {"error":{"message":"no such tool","code":400}}` + "\n\n", streamed(hello), ""},
		"no error in stream":  {200, ":\n\n" + `data: {"id":"c","error":{},"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\ndata: [DONE]\n\n", streamed(hello), ""},
		"ends early":          {200, ":\n\n" + `data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":null}]}` + "\n\n", streamed(hello), "model_error"},
		"ends early with an empty reason": {
			200, ":\n\n" + `data: {"id":"c","error":{},"choices":[{"index":0,"delta":{"content":"a"},"finish_reason":""}]}` + "\n\n", streamed(hello), "model_error",
		},
		"one ends early":  {200, ":\n\n" + `data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"},{"index":1,"delta":{"content":"a"}}]}` + "\n\n", streamed(hello), "model_error"},
		"nothing":         {200, ":\n\n", streamed(hello), "model_error"},
		"without [DONE]":  {200, ":\n\n" + `data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n", streamed(hello), ""},
		"no reason given": {200, ":\n\n" + `data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\ndata: [DONE]\n\n", streamed(hello), ""},
		"too long in stream": {
			200, ":\n\n" + `data: {"error":{"message":"This model's maximum context length is 8 tokens."}}` + "\n\n", streamed(hello), "context_overflow",
		},
		"cut off": {200, runaway["chat"](0), streamed(hello), "model_error"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p, store := plugged(t, func(*http.Request) (*http.Response, error) {
				switch res := respond(tt.status, http.Header{"Content-Type": {"application/json"}}, tt.reply); {
				case tt.status == 0:
					return nil, errors.New("connection refused")
				case strings.HasPrefix(tt.reply, ":"):
					res.Header = http.Header{"Content-Type": {"text/event-stream"}}
					return res, nil
				case strings.HasPrefix(tt.reply, "data:"):
					res.Header, res.ContentLength = http.Header{"Content-Type": {"text/event-stream"}}, -1
					res.Body = io.NopCloser(io.MultiReader(res.Body, reader(func([]byte) (int, error) { return 0, io.ErrUnexpectedEOF })))
					return res, nil
				default:
					return res, nil
				}
			}, func(c *proxy.Config) { c.Retry.Attempts = 1 }, "backend")
			cutOff(t, p, attemptPath, tt.body)
			if err := p.Flush(t.Context(), nil); err != nil {
				t.Fatal(err)
			}
			calls := store.calls()
			if len(calls) != 1 || attribute(t, &calls[0], record.AttrOutcome) != tt.want || string(adapter.CallOutcome(calls)) != tt.want {
				t.Errorf("recorded as %+v", calls)
			}
			closed(t, p)
		})
	}
}

// A redirect is a wrong base_url. Nobody follows it, neither does it count as a failure of the backend.
func TestRedirect(t *testing.T) {
	t.Parallel()
	moved := true
	p, store := plugged(t, func(*http.Request) (*http.Response, error) {
		if !moved {
			return respond(200, nil, `{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"a"},"finish_reason":"stop"}]}`), nil
		}
		return respond(301, http.Header{"Location": {"https://backend/v1?key=s3cret"}}, "<html>moved</html>"), nil
	}, func(c *proxy.Config) { c.Health.Failures = 1 }, "backend")
	const want = `the backend of model \"m\" answered 301 with the Location \"https://backend/v1?key=xxxxx\": base_url must be the URL that answers itself`
	w := ask(t.Context(), p, attemptPath, hello, nil)
	if w.Code != http.StatusBadGateway || w.Header().Get("Location") != "" || !strings.Contains(w.Body.String(), want) || strings.Count(w.Body.String(), "301") != 1 {
		t.Errorf("answered %d %v %s", w.Code, w.Header(), w.Body)
	}
	moved = false
	if w := ask(t.Context(), p, attemptPath, hello, nil); w.Code != http.StatusOK {
		t.Errorf("then answered %d %s", w.Code, w.Body)
	}
	closed(t, p)
	if calls := store.calls(); len(calls) != 2 {
		t.Errorf("recorded %d calls: %+v", len(calls), calls)
	}
}

// What a backend sends after the event that ends its stream reaches an agent of the same API, and is not part of the record.
func TestRecordEndsWithTheStream(t *testing.T) {
	t.Parallel()
	const (
		chunk   = `data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop","token_ids":[1]}],"prompt_token_ids":[7]}` + "\n\n"
		another = `data: {"id":"d","choices":[{"index":0,"delta":{"content":"more"},"finish_reason":"length","token_ids":[2]}],"error":{"message":"late"}}` + "\n\n"
		message = `event: message_start` + "\n" + `data: {"type":"message_start","message":{"id":"m","content":[],"usage":{"input_tokens":1,"output_tokens":1}}}` + "\n\n" +
			`data: {"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}` + "\n\n" + `data: {"type":"message_stop"}` + "\n\n"
		response = `data: {"type":"response.completed","response":{"id":"r","output":[],"status":"completed"}}` + "\n\n"
	)
	for name, tt := range map[string]struct {
		path, body, stream, after string
		edit                      func(m *proxy.Model)
		want                      string // what the agent gets of after
	}{
		"chat":       {attemptPath, hello, chunk + "data: [DONE]\n\n", another + "data: broken\n\n", nil, strings.Replace(another, `,"token_ids":[2]`, "", 1) + "data: broken\n\n"},
		"translated": {messagesPath, `{"model":"m","max_tokens":5,"messages":[]}`, chunk + "data: [DONE]\n\n", another + "data: broken\n\n", nil, ""},
		"messages": {
			messagesPath, `{"model":"m","max_tokens":5,"messages":[]}`, message, `data: {"type":"message_delta","delta":{"stop_reason":"max_tokens"}}` + "\n\n",
			func(m *proxy.Model) { m.API = proxy.APIAnthropic }, `data: {"type":"message_delta","delta":{"stop_reason":"max_tokens"}}` + "\n\n",
		},
		"responses": {
			strings.Replace(attemptPath, "chat/completions", "responses", 1), `{"model":"m","input":"hi"}`, response, `data: {"type":"response.failed","response":{"id":"s"}}` + "\n\n",
			func(m *proxy.Model) { m.TextOnly = true }, `data: {"type":"response.failed","response":{"id":"s"}}` + "\n\n",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			call := func(stream string) (agent string, attributes map[string]string) {
				p, store := plugged(t, func(*http.Request) (*http.Response, error) {
					return respond(200, http.Header{"Content-Type": {"text/event-stream"}}, stream), nil
				}, func(c *proxy.Config) {
					if tt.edit != nil {
						tt.edit(&c.Models[0])
					}
				}, "backend")
				w, _ := cutOff(t, p, tt.path, streamed(tt.body))
				closed(t, p)
				calls := store.calls()
				if len(calls) != 1 {
					t.Fatalf("%d calls were recorded", len(calls))
				}
				attributes = map[string]string{"status": string(calls[0].Status.Code)}
				for key, value := range calls[0].Attributes.All() {
					if !strings.HasSuffix(key, "_seconds") {
						attributes[key] = string(value)
					}
				}
				return w.Body.String(), attributes
			}
			agent, want := call(tt.stream)
			got, attributes := call(tt.stream + tt.after)
			if diff := cmp.Diff(want, attributes); diff != "" {
				t.Errorf("what came late changed the record (-want +got):\n%s", diff)
			}
			if name != "translated" && got != agent+tt.want || name == "translated" && !strings.Contains(got, "message_stop") {
				t.Errorf("the agent got %q, want %q", got, agent+tt.want)
			}
		})
	}
}
