package client_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// copyOf returns a span that shares no memory with s, as a store keeps it.
func copyOf(t *testing.T, s *agl.Span) (kept agl.Span) {
	t.Helper()
	if err := rawjson.Unmarshal(s.AppendJSON(nil), &kept); err != nil {
		t.Error(err)
	}
	return kept
}

// Spans in their wire form arrive as those that the client writes itself do, in
// as many requests as it takes, whatever becomes of their memory afterwards.
func TestClientSendsSpansJSON(t *testing.T) {
	t.Parallel()
	var got []agl.Span
	away := true
	requests := 0
	store := &stubStore{addSpan: func(_ context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
		if requests++; away {
			away = false
			return agl.AddSpansResult{}, agl.Errorf(agl.CodeUnavailable, "away")
		}
		for i := range p.Spans {
			got = append(got, copyOf(t, &p.Spans[i]))
		}
		return agl.AddSpansResult{Stored: p.Spans, Cancelled: []string{p.Spans[0].AttemptID}}, nil
	}}
	api := httptest.NewServer(newServer(t, server.Config{Store: store}))
	defer api.Close()
	c, err := client.New(client.Config{URL: api.URL, SpanBatch: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var want []agl.Span
	var memory []byte
	docs := make([]jsontext.Value, 5)
	for i := range docs {
		text, err := agl.NewAttributes(agl.Attr{Key: "text", Value: strings.Repeat("x", i*50_000)})
		if err != nil {
			t.Fatal(err)
		}
		s := agl.Span{
			RolloutID: "r", AttemptID: "a" + strconv.Itoa(i), SequenceID: int64(i + 1), TraceID: "t", SpanID: strconv.Itoa(i), Name: "n",
			Status: agl.SpanStatus{Code: agl.StatusOK}, Attributes: text, Resource: agl.SpanResource{Attributes: agl.Attributes("{}")},
		}
		want = append(want, s)
		from := len(memory)
		memory = s.AppendJSON(memory)
		docs[i] = memory[from:]
	}
	added, err := c.AddSpansJSON(t.Context(), agl.AddSpansJSONParams{Spans: docs})
	clear(memory)
	if err != nil || !slices.Equal(added.Cancelled, []string{"a0", "a3"}) || requests != 3 {
		t.Errorf("cancelled %q after %d requests, %v", added.Cancelled, requests, err)
	}
	if len(got) != len(want) {
		t.Fatalf("the store got %d spans, want %d", len(got), len(want))
	}
	for i := range want {
		if got, want := got[i].AppendJSON(nil), want[i].AppendJSON(nil); !bytes.Equal(got, want) {
			t.Errorf("span %d: got %.300s, want %.300s", i, got, want)
		}
	}
}

// textSpan is a span of an attempt with a text of its own of so many bytes.
func textSpan(t *testing.T, a agl.AttemptedRollout, id string, size int) agl.Span {
	t.Helper()
	word := fmt.Sprintf("<%s>", id)
	text, err := agl.NewAttributes(agl.Attr{Key: "text", Value: strings.Repeat(word, size/len(word)+1)})
	if err != nil {
		t.Fatal(err)
	}
	return agl.Span{
		RolloutID: a.RolloutID, AttemptID: a.Attempt.AttemptID, SequenceID: 1, TraceID: "t", SpanID: id, Name: "n",
		Status: agl.SpanStatus{Code: agl.StatusOK}, Attributes: text, Resource: agl.SpanResource{Attributes: agl.Attributes("{}")},
	}
}

// sameSpans checks that the store has exactly these documents of a rollout.
func sameSpans(t *testing.T, store agl.Store, rolloutID string, want map[string]string) {
	t.Helper()
	page, err := store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: rolloutID, Paging: agl.Paging{}})
	if err != nil {
		t.Fatal(err)
	}
	if len(page.Items) != len(want) {
		t.Errorf("%d spans stored, want %d", len(page.Items), len(want))
	}
	for i := range page.Items {
		s := &page.Items[i]
		if got := string(s.AppendJSON(nil)); got != want[s.SpanID] {
			t.Errorf("span %s is not what was sent: %.300s, want %.300s", s.SpanID, got, want[s.SpanID])
		}
	}
}

// A body in parts arrives whole however it gets there: after a connection that
// broke off, over TLS, through a transport of the caller's own; and a server that
// answers before it has read it ends the call.
func TestPartsArrive(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	whole := newServer(t, server.Config{Store: store})
	first := func(h func(w http.ResponseWriter, r *http.Request)) http.Handler {
		var seen atomic.Bool
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if seen.Swap(true) {
				whole.ServeHTTP(w, r)
				return
			}
			h(w, r)
		})
	}
	for name, test := range map[string]struct {
		handler http.Handler
		tls     bool
		code    error
	}{
		"plain": {handler: whole},
		"tls":   {handler: whole, tls: true},
		"broken off": {handler: first(func(_ http.ResponseWriter, r *http.Request) {
			if _, err := io.CopyN(io.Discard, r.Body, 1<<20); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		})},
		"unavailable at first": {handler: first(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })},
		"refused unread": {handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusUnauthorized)
		}), code: agl.ErrUnauthorized},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := httptest.NewUnstartedServer(test.handler)
			config := client.Config{}
			if test.tls {
				api.StartTLS()
				config.Transport = api.Client().Transport
			} else {
				api.Start()
			}
			defer api.Close()
			config.URL = api.URL
			c, err := client.New(config)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			a, err := store.StartRollout(context.WithoutCancel(t.Context()), agl.StartRolloutParams{})
			if err != nil {
				t.Fatal(err)
			}
			want := make(map[string]string)
			var memory []byte
			var docs []jsontext.Value
			for i := range 40 {
				s := textSpan(t, a, fmt.Sprint(i), 100<<10)
				doc := s.AppendJSON(nil)
				want[s.SpanID] = string(doc)
				memory = append(memory, doc...)
			}
			for at, i := 0, 0; i < 40; i++ {
				end := at + len(want[fmt.Sprint(i)])
				docs = append(docs, memory[at:end:end])
				at = end
			}
			_, err = c.AddSpansJSON(t.Context(), agl.AddSpansJSONParams{Spans: docs})
			clear(memory)
			if test.code != nil {
				want = nil
			}
			if !errors.Is(err, test.code) {
				t.Errorf("error is %v, want %v", err, test.code)
			}
			sameSpans(t, store, a.RolloutID, want)
		})
	}
}
