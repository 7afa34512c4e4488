package proxy_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/record"
)

// leaver is an agent that leaves as soon as it has read something.
type leaver struct {
	*httptest.ResponseRecorder

	when  string
	leave func()
}

// Flush implements [http.Flusher].
func (l *leaver) Flush() {
	if strings.Contains(l.Body.String(), l.when) {
		l.leave()
	}
}

// An agent that leaves with the event that ends a stream has all of the reply,
// though the backend has not closed it; one that leaves before has not.
func TestLeavesAtTheEnd(t *testing.T) {
	t.Parallel()
	for when, want := range map[string]struct {
		status    agl.StatusCode
		delivered string
	}{
		"data: [DONE]\n\n":     {agl.StatusOK, "true"},
		`"finish_reason":null`: {agl.StatusError, "false"},
	} {
		t.Run(want.delivered, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				stream := []string{runaway["chat"](0), "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n", "data: [DONE]\n\n"}
				p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
					return events(r, func(i int) string {
						if i < len(stream) {
							return stream[i]
						}
						<-r.Context().Done()
						return ": the end\n\n"
					}), nil
				}, nil, "backend")
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				r := httptest.NewRequestWithContext(ctx, http.MethodPost, attemptPath, strings.NewReader(streamed(hello)))
				if broken := aborts(func() { p.ServeHTTP(&leaver{httptest.NewRecorder(), when, cancel}, r) }); broken != (want.status != agl.StatusOK) {
					t.Errorf("broken off: %v", broken)
				}
				if err := p.Flush(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				calls := store.calls()
				if len(calls) != 1 || calls[0].Status.Code != want.status || attribute(t, &calls[0], record.AttrDelivered) != want.delivered {
					t.Errorf("recorded as %+v", calls)
				}
				closed(t, p)
			})
		})
	}
}
