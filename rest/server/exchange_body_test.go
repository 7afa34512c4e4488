package server_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/memnet"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func TestBodies(t *testing.T) {
	t.Parallel()
	api := newServer(t, server.Config{Store: memorytest.Open(t), MaxBodyBytes: 1000})
	zip := func(s string) string {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		if _, err := z.Write([]byte(s)); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return b.String()
	}
	doc := func(n int) string { return `{"input":"` + strings.Repeat("x", n) + `"}` }
	for _, tc := range []struct {
		name, body, encoding string
		chunked              bool
		status               int
		want                 string
	}{
		{"fits", doc(980), "", false, 201, "xxx"},
		{"too long", doc(1000), "", false, 413, "larger than 1000 bytes"},
		{"too long in chunks", doc(1000), "", true, 413, "larger than 1000 bytes"},
		{"chunked", doc(10), "", true, 201, "xxx"},
		{"gzip", zip(doc(900)), "gzip", false, 201, "xxx"},
		{"a bomb", zip(doc(1 << 20)), "gzip", false, 413, "larger than 1000 bytes"},
		{"not gzip", doc(1), "gzip", false, 400, "not gzip"},
		{"cut gzip", zip(doc(900))[:30], "gzip", false, 400, "could not be read"},
		{"other encoding", doc(1), "br", false, 415, `"br\" is not supported`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/agl/rollouts", strings.NewReader(tc.body))
			r.Header.Set("Content-Encoding", tc.encoding)
			if tc.chunked {
				r.ContentLength = -1
			}
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.want) {
				t.Errorf("got %d %s, want %d with %s", w.Code, w.Body, tc.status, tc.want)
			}
		})
	}
}

// greedyBody is a body that breaks off after its first piece and notes how much
// room it was given.
type greedyBody struct{ room int }

func (b *greedyBody) Read(p []byte) (int, error) {
	if b.room == 0 {
		b.room = len(p)
		return copy(p, "{"), nil
	}
	return 0, io.ErrUnexpectedEOF
}

// TestClaimedLength checks that a length costs the server nothing until the
// body is there.
func TestClaimedLength(t *testing.T) {
	t.Parallel()
	api := newServer(t, server.Config{Store: memorytest.Open(t)})
	body := &greedyBody{}
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/agl/queues/rollouts/enqueue", body)
	r.ContentLength = 64 << 20
	w := httptest.NewRecorder()
	api.ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest || body.room > 1<<20 {
		t.Errorf("status %d after a read of up to %d bytes, want 400 and at most 1 MiB", w.Code, body.room)
	}

	long := `{"rollouts":[{"input":"` + strings.Repeat("x", 3<<20) + `"}]}`
	if w := ask(t, api, http.MethodPost, "/v1/agl/queues/rollouts/enqueue", long); w.Code >= 300 {
		t.Errorf("a long body: %d %s", w.Code, w.Body)
	}
	r = httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/agl/queues/rollouts/enqueue", strings.NewReader(long))
	r.ContentLength++
	w = httptest.NewRecorder()
	api.ServeHTTP(w, r)
	if w.Code != http.StatusBadRequest {
		t.Errorf("a body shorter than it says: %d %s", w.Code, w.Body)
	}
}

// A body that never arrives costs the server a connection for half a minute and
// no more; a long poll is not cut.
func TestSlowBody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		listener := memnet.Listen()
		web := httpserver.New(newServer(t, server.Config{Store: memorytest.Open(t)}), slog.New(slog.DiscardHandler))
		var serving sync.WaitGroup
		serving.Go(func() { _ = web.Serve(listener) })
		defer serving.Wait()
		defer web.Close()
		for _, tc := range []struct {
			body   string
			length int64
			status int
			took   time.Duration
		}{
			{`{"limit":1,`, 20, http.StatusRequestTimeout, 30 * time.Second},
			{`{"limit":1,"wait_seconds":60}`, 29, http.StatusOK, time.Minute},
		} {
			start := time.Now()
			rest, stop := io.Pipe()
			r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://store/v1/agl/queues/rollouts/dequeue", io.MultiReader(strings.NewReader(tc.body), rest))
			if err != nil {
				t.Fatal(err)
			}
			r.ContentLength = tc.length
			res, err := (&http.Transport{DialContext: listener.Dial, DisableKeepAlives: true}).RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			answer := readAll(t, res.Body)
			res.Body.Close()
			stop.Close()
			if took := time.Since(start); res.StatusCode != tc.status || took != tc.took {
				t.Errorf("got %s %s after %s, want %d after %s", res.Status, answer, took, tc.status, tc.took)
			}
		}
	})
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

// Bodies of all sizes, whole, in chunks and compressed, some at once, share the
// server's memory, and none has anything of another.
func TestLargeBodies(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	api := httptest.NewServer(newServer(t, server.Config{Store: store}))
	defer api.Close()
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
				answer := sendSpans(t, api.URL, encoding, append(body, "]}"...))
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
