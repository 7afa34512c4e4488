package rest_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest"
	"github.com/agl-go/agl/store/memory/memorytest"
)

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

// Bodies of all sizes, whole, in chunks and compressed, some at once, share the
// server's memory, and none has anything of another.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	server := httptest.NewServer(newServer(t, rest.ServerConfig{Store: store}))
	defer server.Close()
	sizes := []int{1 << 10, 300 << 10, 2500 << 10, 1200 << 10, 100 << 10, 700 << 10, 300 << 10}
	var senders sync.WaitGroup
	for _, encoding := range []string{"whole", "chunks", "gzip"} {
		senders.Go(func() {
			a, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
			if err != nil {
				t.Error(err)
				return
			}
			want := make(map[string]string)
			for i, size := range sizes {
				body := []byte(`{"spans":[`)
				for j := range 3 {
					s := textSpan(t, a, fmt.Sprint(encoding, i, j), size/3)
					want[s.SpanID] = string(s.AppendJSON(nil))
					if j > 0 {
						body = append(body, ',')
					}
					body = s.AppendJSON(body)
				}
				answer := sendSpans(t, server.URL, encoding, append(body, "]}"...))
				for id, doc := range want {
					if strings.HasPrefix(id, fmt.Sprint(encoding, i)) && !strings.Contains(answer, doc) {
						t.Errorf("%s of %d bytes: the answer has no span %s", encoding, size, id)
					}
				}
			}
			sameSpans(t, store, a.RolloutID, want)
		})
	}
	senders.Wait()
}

// sendSpans posts a body and returns the answer.
func sendSpans(t *testing.T, url, encoding string, body []byte) string {
	t.Helper()
	var from io.Reader = bytes.NewReader(body)
	switch encoding {
	case "chunks":
		from = io.MultiReader(from) // of unknown length
	case "gzip":
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(body); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		from = &packed
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/v1/agl/spans/batch", from)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	if encoding == "gzip" {
		req.Header.Set("Content-Encoding", "gzip")
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil || res.StatusCode != http.StatusCreated {
		t.Errorf("%d %.300s, %v", res.StatusCode, answer, err)
	}
	return string(answer)
}

// A body in parts arrives whole however it gets there: after a connection that
// broke off, over TLS, through a transport of the caller's own; and a server that
// answers before it has read it ends the call.
func TestPartsArrive(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	whole := newServer(t, rest.ServerConfig{Store: store})
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
			server := httptest.NewUnstartedServer(test.handler)
			config := rest.ClientConfig{}
			if test.tls {
				server.StartTLS()
				config.Transport = server.Client().Transport
			} else {
				server.Start()
			}
			defer server.Close()
			config.URL = server.URL
			client, err := rest.NewClient(config)
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
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
			_, err = client.AddSpansJSON(t.Context(), agl.AddSpansJSONParams{Spans: docs})
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
