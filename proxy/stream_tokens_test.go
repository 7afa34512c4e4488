package proxy_test

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/agl-go/agl/proxy"
)

// The tokens of a stream do not depend on how it is relayed or on the pieces it comes in: recorded or not, translated or
// not, too long to be recorded from some event on.
func TestTokensOfStreams(t *testing.T) {
	t.Parallel()
	const (
		first = "data: {\"id\":\"c\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"a\"}}]}\n\n"
		word  = "data: {\"id\":\"c\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"}}]}\n\n"
		last  = "data: {\"id\":\"c\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n"
		usage = "data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":30}}\n\n"
		done  = "data: [DONE]\n\n"
	)
	text := first + strings.Repeat(word, 20) + last // 22 events
	type edits = map[string]func(c *proxy.Config)
	tooLong := func(c *proxy.Config) { c.MaxReplyBytes = 1000 }
	all := edits{
		"recorded": nil, "too long": tooLong,
		"counted exactly": func(c *proxy.Config) { c.Control.Budget.Tokens = 1 << 20 },
		"not recorded":    func(c *proxy.Config) { c.Capture = proxy.CaptureOff },
	}
	both, translated := []string{attemptPath, messagesPath}, []string{messagesPath}
	pieces := []int{1, 97, 1 << 20}
	for _, tt := range []struct {
		name, stream string
		paths        []string
		edits        edits
		pieces       []int
		want         string
	}{
		{"usage", text + usage + done, both, all, pieces, " prompt_tokens=9 completion_tokens=30 "},
		{"no usage", text, both, all, pieces, " completion_tokens=22 "},
		{"CRLF", strings.ReplaceAll(text+usage+done, "\n", "\r\n"), both, all, pieces, " prompt_tokens=9 completion_tokens=30 "},
		{"several lines", text + strings.Replace(usage, ",", ",\ndata: ", 2) + done, both, all, pieces, " prompt_tokens=9 completion_tokens=30 "},
		{"no blank line", text + strings.TrimSpace(usage), both, all, pieces, " prompt_tokens=9 completion_tokens=30 "},
		{"a malformed event", first + "data: {\"choices\":[\n\n" + word + last + usage + done, translated, all, []int{1 << 20}, " prompt_tokens=9 completion_tokens=30 "},
		{"a long event", "data: {\"x\":\"" + strings.Repeat("y", 5000), translated, edits{"too long": tooLong}, pieces, " prompt_tokens=21 completion_tokens=0 "},
	} {
		for _, path := range tt.paths {
			for how, edit := range tt.edits {
				for _, size := range tt.pieces {
					t.Run(fmt.Sprint(tt.name, ", ", how, path, " in pieces of ", size), func(t *testing.T) {
						t.Parallel()
						synctest.Test(t, func(t *testing.T) {
							if got := loggedStream(t, path, edit, tt.stream, size); !strings.Contains(got, tt.want) {
								t.Errorf("want%s, got %s", tt.want, got)
							}
						})
					})
				}
			}
		}
	}
}

// loggedStream returns the line that is logged for a call that gets a stream in pieces.
func loggedStream(t *testing.T, path string, edit func(c *proxy.Config), stream string, size int) string {
	t.Helper()
	var log bytes.Buffer
	p, _ := plugged(t, func(*http.Request) (*http.Response, error) { return inPieces(stream, size), nil }, func(c *proxy.Config) {
		c.Logger, c.LogCalls, c.Models[0].TextOnly = slog.New(slog.NewTextHandler(&log, nil)), true, true
		if edit != nil {
			edit(c)
		}
	}, "backend")
	body := streamed(hello)
	if path == messagesPath {
		body = streamed(askMessage)
	}
	cutOff(t, p, path, body)
	closed(t, p)
	return log.String()
}

// inPieces is a stream of a backend, in pieces of size bytes.
func inPieces(stream string, size int) *http.Response {
	res := respond(200, http.Header{"Content-Type": {"text/event-stream"}}, "")
	res.ContentLength = -1
	res.Body = io.NopCloser(reader(func(p []byte) (int, error) {
		if stream == "" {
			return 0, io.EOF
		}
		n := copy(p, stream[:min(size, len(stream))])
		stream = stream[n:]
		return n, nil
	}))
	return res
}

// A backend that breaks off or falls silent within an event is said to have done that, and not to have sent something malformed.
func TestStreamEndsWithinAnEvent(t *testing.T) {
	t.Parallel()
	const begun = "data: {\"id\":\"c\",\"created\":1,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\ndata: {\"id\":\"c\",\"choi"
	for want, end := range map[string]func(r *http.Request) error{
		"unexpected EOF":         func(*http.Request) error { return io.ErrUnexpectedEOF },
		"sent nothing for 10m0s": func(r *http.Request) error { <-r.Context().Done(); return r.Context().Err() },
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
					left := begun
					res := inPieces("", 0)
					res.Body = io.NopCloser(reader(func(b []byte) (int, error) {
						if left == "" {
							return 0, end(r)
						}
						n := copy(b, left)
						left = left[n:]
						return n, nil
					}))
					return res, nil
				}, nil, "backend")
				w, broken := cutOff(t, p, messagesPath, streamed(askMessage))
				closed(t, p)
				if calls := store.calls(); !broken || !strings.Contains(w.Body.String(), want) || len(calls) != 1 || !strings.Contains(calls[0].Status.Description.V, want) {
					t.Errorf("the agent got %s; on record are %d calls", w.Body, len(calls))
				}
			})
		})
	}
}
