package server_test

import (
	"bytes"
	"context"
	"io"
	"iter"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/server"
)

// failingLater is a store whose spans and events fail when some of them are sent.
type failingLater struct {
	manyItems

	err error
}

func (s *failingLater) QuerySpansJSON(ctx context.Context, p agl.QuerySpansParams) (agl.Page[jsontext.Value], error) {
	page, err := s.manyItems.QuerySpansJSON(ctx, p)
	if p.Offset > 0 {
		return agl.Page[jsontext.Value]{}, s.err
	}
	return page, err
}

func (s *failingLater) Events(context.Context, agl.EventsParams) iter.Seq2[agl.Event, error] {
	return func(yield func(agl.Event, error) bool) {
		_ = yield(agl.Event{ID: "1", Kind: agl.EventReset}, nil) && yield(agl.Event{}, s.err)
	}
}

// A failure of the store after the beginning of an answer is in the log, because the client is told of no details, and by a list
// of no more than that it was cut off.
func TestFailuresWithinAnswersAreLogged(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		err   error
		log   string // in the log; "" is nothing
		event string // in the last event
	}{
		{agl.Errorf(agl.CodeInternal, "a secret is damaged"), `level=ERROR msg="request failed" request_id=`, `"detail":"Internal server error"`},
		{agl.Errorf(agl.CodeUnavailable, "a secret is away"), `msg="the store refuses requests" code=unavailable`, `a secret is away`},
		{agl.Errorf(agl.CodeEvicted, "a secret is evicted"), "", `a secret is evicted`},
	} {
		for _, path := range []string{"/v1/agl/spans?rollout_id=ro-1&limit=-1", "/v1/agl/events"} {
			t.Run(string(agl.ErrorCode(tc.err))+path, func(t *testing.T) {
				t.Parallel()
				var log bytes.Buffer
				api := newServer(t, server.Config{
					Store: &failingLater{manyItems{total: 200}, tc.err}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
				})
				body := func() string {
					defer func() {
						if v := recover(); v != nil && v != http.ErrAbortHandler { //nolint:errorlint // it is never wrapped
							panic(v)
						}
					}()
					w := ask(t, api, "GET", path, "")
					text, err := io.ReadAll(w.Body)
					if err != nil {
						t.Error(err)
					}
					return string(text)
				}()
				if text := log.String(); !strings.Contains(text, tc.log) || strings.Contains(text, tc.err.Error()) != (tc.log != "") {
					t.Errorf("got the log %q, want %q with the error", text, tc.log)
				}
				if strings.HasSuffix(path, "events") && !strings.Contains(body, tc.event) {
					t.Errorf("the stream ends with %s, want %s", body, tc.event)
				}
				if agl.ErrorCode(tc.err) == agl.CodeInternal && strings.Contains(body, "secret") {
					t.Errorf("the answer shows internals: %s", body)
				}
			})
		}
	}
}
