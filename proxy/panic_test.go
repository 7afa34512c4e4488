package proxy_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/agl-go/agl/proxy"
)

// panicky is an agent's connection that panics when a reply is written to it.
type panicky struct{ http.ResponseWriter }

func (panicky) Write([]byte) (int, error) { panic("boom") }
func (panicky) Flush()                    {}

// TestPanics: a call that panics, in the transport or anywhere else, has ended for those who flush its attempt.
func TestPanics(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		transport backend
		wrap      func(http.ResponseWriter) http.ResponseWriter
		status    int // 0 is a panic
		text      string
	}{
		"transport": {func(*http.Request) (string, error) { panic("boom") }, func(w http.ResponseWriter) http.ResponseWriter { return w }, http.StatusBadGateway, "panic: boom, at "},
		"reply":     {always, func(w http.ResponseWriter) http.ResponseWriter { return panicky{w} }, 0, "the proxy panicked"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				store := &spans{}
				p := unplugged(t, test.transport, store, func(c *proxy.Config) { c.Retry.Attempts = 1 })
				w := httptest.NewRecorder()
				status := 0
				func() {
					defer func() {
						if recover() == nil {
							status = w.Code
						}
					}()
					p.ServeHTTP(test.wrap(w), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/rollout/r/attempt/a/chat/completions", strings.NewReader(hello)))
				}()
				if status != test.status {
					t.Errorf("status %d, want %d: %s", status, test.status, w.Body)
				}
				if err := p.Flush(t.Context(), nil); err != nil {
					t.Error(errors.Join(err, errors.New("flush")))
				}
				closed(t, p)
				var recorded []byte
				for _, s := range store.calls() {
					recorded = s.AppendJSON(recorded)
				}
				if !strings.Contains(string(recorded), test.text) {
					t.Errorf("want %q in the spans: %s", test.text, recorded)
				}
			})
		})
	}
}

// TestPanicsOfEngines: a transport that panics in a request to an engine does not end the process.
func TestPanicsOfEngines(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, _ := plugged(t, func(*http.Request) (*http.Response, error) { panic("boom") }, func(c *proxy.Config) {
			c.Models[0].PauseURL, c.Models[0].HealthURL = "/pause", "/health"
		}, "backend")
		if err := p.Pause(t.Context(), proxy.PauseHold); err == nil || !strings.Contains(err.Error(), "panic: boom, at ") {
			t.Errorf("pause: %v", err)
		}
		closed(t, p)
	})
}
