package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// forgetful is a store in which a server finds no span to continue.
type forgetful struct{ agl.Store }

func (f forgetful) Capabilities() agl.Capabilities {
	c := f.Store.Capabilities()
	c.QuerySpansJSON = false
	return c
}

// link is the way from a client to the server of the day. It counts what goes over it.
type link struct {
	server  http.Handler
	old     bool // the server is of a version that has no short form
	lost    int  // answers that are lost
	bytes   int
	short   int // requests in the short form
	refused int // those of them that the server did not take
}

const shortType = "application/vnd.agl.spans"

func (l *link) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	l.bytes += len(body)
	r = r.Clone(r.Context())
	r.Body = io.NopCloser(bytes.NewReader(body))
	short := r.Header.Get("Content-Type") == shortType
	if l.old {
		r.Header.Del("Agl-Span-Form")
		if short {
			r.Header.Set("Content-Type", "application/octet-stream")
		}
	}
	w := httptest.NewRecorder()
	l.server.ServeHTTP(w, r)
	if short {
		l.short++
		if w.Code >= 400 {
			l.refused++
		}
	}
	if l.lost > 0 {
		l.lost--
		return nil, &net.OpError{Op: "read", Net: "tcp", Err: errors.New("connection reset by peer")}
	}
	return w.Result(), nil
}

func (l *link) client(t interface{ Fatal(args ...any) }) *client.Client {
	c, err := client.New(client.Config{URL: "http://store", Transport: l, MaxBackoff: time.Nanosecond})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// callSpan is the span of a model call with these messages.
func callSpan(t interface{ Fatal(args ...any) }, rolloutID, attemptID string, n int, messages []string) agl.Span {
	attrs := []agl.Attr{{Key: "gen_ai.system", Value: "openai"}}
	for i, m := range messages {
		attrs = append(attrs, agl.Attr{Key: fmt.Sprintf("gen_ai.prompt.%d.content", i), Value: m})
	}
	attributes, err := agl.NewAttributes(attrs...)
	if err != nil {
		t.Fatal(err)
	}
	return agl.Span{
		RolloutID: rolloutID, AttemptID: attemptID, SequenceID: int64(n + 1), TraceID: "t", SpanID: fmt.Sprintf("%016x", n), Name: "call",
		Status: agl.SpanStatus{Code: agl.StatusOK}, Attributes: attributes, Resource: agl.SpanResource{Attributes: agl.Attributes("{}")},
	}
}

// shortenFrom is the default of Config.ShortenFrom.
const shortenFrom = 42 << 10

// long returns a message that makes a span long enough to be continued.
func long() string { return strings.Repeat("It is said. ", shortenFrom/10) }

// TestConversationOverHTTP sends what a conversation says, not its square.
func TestConversationOverHTTP(t *testing.T) {
	t.Parallel()
	const turns = 64
	for _, issue := range []bool{false, true} {
		t.Run(fmt.Sprintf("issue sequence ids %t", issue), func(t *testing.T) {
			t.Parallel()
			store := memorytest.Open(t)
			r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
			if err != nil {
				t.Fatal(err)
			}
			l := &link{server: newServer(t, server.Config{Store: store})}
			c := l.client(t)
			defer c.Close()
			messages := []string{long()}
			said := len(messages[0])
			var want []string
			for n := range turns {
				messages = append(messages, strings.Repeat(fmt.Sprintf("%d is said ", n), 100))
				said += len(messages[n+1])
				s := callSpan(t, r.RolloutID, r.Attempt.AttemptID, n, messages)
				want = append(want, string(s.AppendJSON(nil)))
				if issue {
					s.SequenceID = 0
				}
				added, err := c.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{s}, IssueSequenceIDs: issue})
				if err != nil || len(added.Stored) != 1 || added.Stored[0].SequenceID != int64(n+1) {
					t.Fatalf("turn %d: stored %v, %v", n, added.Stored, err)
				}
			}
			if limit := 2 * said; l.bytes > limit || l.refused > 0 || l.short != turns-1 {
				t.Errorf("%d bytes in %d short requests, %d refused, for %d that were said; want at most %d in %d", l.bytes, l.short, l.refused, said, limit, turns-1)
			}
			if diff := cmp.Diff(want, spansOf(t, store, r.RolloutID)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func spansOf(t interface{ Fatal(args ...any) }, s agl.Store, rolloutID string) (documents []string) {
	page, err := s.QuerySpansJSON(context.Background(), agl.QuerySpansParams{RolloutID: rolloutID})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range page.Items {
		documents = append(documents, string(d))
	}
	return documents
}

// TestAnyHistoryOverHTTP has calls with random edits in parallel branches, while servers come, go and
// forget, and answers are lost. What is read back is what was sent.
func TestAnyHistoryOverHTTP(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		store := memorytest.Open(t)
		l := &link{server: newServer(t, server.Config{Store: store})}
		c := l.client(rt)
		defer func() { _ = c.Close() }()
		type attempt struct {
			rolloutID, attemptID string
			branches             [][]string
			want                 []string
		}
		attempts := make([]attempt, 2)
		for i := range attempts {
			r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
			if err != nil {
				rt.Fatal(err)
			}
			attempts[i] = attempt{rolloutID: r.RolloutID, attemptID: r.Attempt.AttemptID, branches: [][]string{{long()}, nil, nil}}
		}
		said := 0
		text := func() string {
			said++
			return strings.Repeat(fmt.Sprintf("%d \"says\"\n%d ", said, said), rapid.IntRange(1, 200).Draw(rt, "words"))
		}
		for range rapid.IntRange(1, 25).Draw(rt, "requests") {
			switch rapid.SampledFrom([]string{"call", "call", "call", "call", "lost", "restart", "forgetful", "old", "client"}).Draw(rt, "event") {
			case "lost":
				l.lost = rapid.IntRange(1, 3).Draw(rt, "lost")
			case "restart":
				l.server, l.old = newServer(t, server.Config{Store: store}), false
			case "forgetful":
				l.server, l.old = newServer(t, server.Config{Store: forgetful{store}}), false
			case "old":
				l.server, l.old = newServer(t, server.Config{Store: store}), true
			case "client":
				_ = c.Close()
				c = l.client(rt)
			}
			a := &attempts[rapid.IntRange(0, len(attempts)-1).Draw(rt, "attempt")]
			var docs []jsontext.Value
			for range rapid.IntRange(1, 3).Draw(rt, "calls") {
				branch := &a.branches[rapid.IntRange(0, len(a.branches)-1).Draw(rt, "branch")]
				switch n := len(*branch); {
				case n > 0 && rapid.IntRange(0, 4).Draw(rt, "edit") == 0:
					*branch = slices.Clone(*branch)
					(*branch)[rapid.IntRange(0, n-1).Draw(rt, "at")] = text()
				case n > 2 && rapid.IntRange(0, 9).Draw(rt, "compact") == 0:
					*branch = append([]string{text()}, (*branch)[n-1])
				case rapid.IntRange(0, 9).Draw(rt, "fork") == 0:
					*branch = slices.Clone(a.branches[rapid.IntRange(0, len(a.branches)-1).Draw(rt, "from")])
				}
				*branch = append(slices.Clip(*branch), text())
				span := callSpan(rt, a.rolloutID, a.attemptID, len(a.want), *branch)
				docs = append(docs, span.AppendJSON(nil))
				a.want = append(a.want, string(docs[len(docs)-1]))
			}
			if _, err := c.AddSpansJSON(t.Context(), agl.AddSpansJSONParams{Spans: docs}); err != nil {
				rt.Fatal(err)
			}
		}
		for i := range attempts {
			if diff := cmp.Diff(attempts[i].want, spansOf(rt, store, attempts[i].rolloutID)); diff != "" {
				rt.Fatal(diff)
			}
		}
	})
}

// TestSmallSpansGoWhole sends a span twice under two ids: the second time the server gets what it adds or, of a small span,
// all of it in JSON.
func TestSmallSpansGoWhole(t *testing.T) {
	t.Parallel()
	for words, short := range map[int]int{shortenFrom / 6: 0, shortenFrom / 4: 2} {
		store := memorytest.Open(t)
		r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
		if err != nil {
			t.Fatal(err)
		}
		l := &link{server: newServer(t, server.Config{Store: store})}
		c := l.client(t)
		defer c.Close()
		size := 0
		for n := range 3 { // the first one learns what the server accepts
			l.bytes = 0
			span := callSpan(t, r.RolloutID, r.Attempt.AttemptID, n, []string{strings.Repeat("said ", words)})
			document := span.AppendJSON(nil)
			size = len(document)
			if _, err := c.AddSpansJSON(t.Context(), agl.AddSpansJSONParams{Spans: []jsontext.Value{document}}); err != nil {
				t.Fatal(err)
			}
		}
		if l.short != short || (l.bytes > size) != (short == 0) {
			t.Errorf("%d bytes for a span of %d, in the short form %d times, want %d", l.bytes, size, l.short, short)
		}
	}
}

// TestShortenFrom: a client that shortens shorter spans continues those that the server remembers, without a store that has them.
func TestShortenFrom(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	l := &link{server: newServer(t, server.Config{Store: forgetful{store}})}
	c, err := client.New(client.Config{URL: "http://store", Transport: l, ShortenFrom: 4 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const turns = 10
	for n := range turns {
		span := callSpan(t, r.RolloutID, r.Attempt.AttemptID, n, []string{strings.Repeat("said ", 1<<10)})
		if _, err := c.AddSpansJSON(t.Context(), agl.AddSpansJSONParams{Spans: []jsontext.Value{span.AppendJSON(nil)}}); err != nil {
			t.Fatal(err)
		}
	}
	if l.short != turns-1 || l.refused > 0 {
		t.Errorf("%d requests in the short form, %d refused; want %d", l.short, l.refused, turns-1)
	}
}

// TestShortSpansAreExplained: what the server refuses in the short form it is sent in JSON, and its
// answer to that is the caller's.
func TestShortSpansAreExplained(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	l := &link{server: newServer(t, server.Config{Store: store})}
	c := l.client(t)
	defer c.Close()
	messages := []string{long()}
	add := func(attempt string, n int) error {
		span := callSpan(t, r.RolloutID, attempt, n, messages)
		_, err := c.AddSpansJSON(t.Context(), agl.AddSpansJSONParams{Spans: []jsontext.Value{span.AppendJSON(nil)}})
		return err
	}
	if err := add(r.Attempt.AttemptID, 0); err != nil {
		t.Fatal(err)
	}
	unknown := add("at-unknown", 1)
	if !errors.Is(unknown, agl.ErrNotFound) && agl.ErrorCode(unknown) != agl.CodeInvalid || !strings.Contains(unknown.Error(), "at-unknown") {
		t.Errorf("an unknown attempt: %v", unknown)
	}
	if err := add(r.Attempt.AttemptID, 1); err != nil || l.short != 2 || l.refused != 1 {
		t.Errorf("%d requests in the short form, %d refused, %v; want two and one", l.short, l.refused, err)
	}
}
