package proxy_test

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

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
		"one ends early":      {200, ":\n\n" + `data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"},{"index":1,"delta":{"content":"a"}}]}` + "\n\n", streamed(hello), "model_error"},
		"nothing":             {200, ":\n\n", streamed(hello), "model_error"},
		"without [DONE]":      {200, ":\n\n" + `data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"},"finish_reason":"stop"}]}` + "\n\n", streamed(hello), ""},
		"no reason given":     {200, ":\n\n" + `data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\ndata: [DONE]\n\n", streamed(hello), ""},
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
		return respond(301, http.Header{"Location": {"https://backend/v1"}}, "<html>moved</html>"), nil
	}, func(c *proxy.Config) { c.Health.Failures = 1 }, "backend")
	const want = `the backend of model \"m\" answered 301 with the Location \"https://backend/v1\": base_url must be the URL that answers itself`
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
