package server_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// discardWriter is a ResponseWriter that costs next to nothing.
type discardWriter struct {
	header http.Header
	status int
	body   []byte
}

func (w *discardWriter) Header() http.Header { return w.header }

func (w *discardWriter) Write(b []byte) (int, error) {
	w.body = append(w.body, b...)
	return len(b), nil
}

func (w *discardWriter) WriteHeader(status int) { w.status = status }
func (w *discardWriter) Flush()                 {}

// direct sends requests straight to a handler, reusing what it can.
type direct struct {
	tb      testing.TB
	handler http.Handler
	writer  discardWriter
	reader  bytes.Reader
}

func newDirect(tb testing.TB, h http.Handler) *direct {
	return &direct{tb: tb, handler: h, writer: discardWriter{header: http.Header{}}}
}

func (d *direct) do(r *http.Request, body []byte, want int) []byte {
	d.reader.Reset(body)
	r.Body = io.NopCloser(&d.reader)
	r.ContentLength = int64(len(body))
	clear(d.writer.header)
	d.writer.status, d.writer.body = 0, d.writer.body[:0]
	d.handler.ServeHTTP(&d.writer, r)
	if d.writer.status != want {
		d.tb.Fatalf("%s %s: %d %s", r.Method, r.URL.Path, d.writer.status, d.writer.body)
	}
	return d.writer.body
}

func request(tb testing.TB, method, path string) *http.Request {
	r := httptest.NewRequestWithContext(tb.Context(), method, "/v1/agl"+path, nil)
	r.Header.Set("Content-Type", "application/json")
	return r
}

// longSpan is a span document of 1.5 KB.
func longSpan(rolloutID, attemptID, spanID string, sequenceID int64) []byte {
	text := strings.Repeat("words of a prompt, ", 45)
	s := strings.NewReplacer(`"ro-1"`, `"`+rolloutID+`"`, `"at-1"`, `"`+attemptID+`"`, `"b7ad6b7169203331"`, `"`+spanID+`"`,
		`"sequence_id":1`, fmt.Sprintf(`"sequence_id":%d`, sequenceID), `"score":1.0`, `"score":1.0,"gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":"`+text+`"`,
		`"context":null`, `"context":{"trace_id":"00","span_id":"00","is_remote":false,"trace_state":{}}`,
		`"resource":{"attributes":{}`, `"resource":{"attributes":{"service.name":"bench","agentlightning.rollout_id":"`+rolloutID+`"}`).Replace(spanDocument)
	return []byte(s)
}

func BenchmarkServer(b *testing.B) {
	engine := memorytest.Open(b)
	api := newServer(b, server.Config{Store: engine})
	d := newDirect(b, api)

	enqueue, dequeue := request(b, "POST", "/queues/rollouts/enqueue"), request(b, "POST", "/queues/rollouts/dequeue")
	task := []byte(`{"rollouts": [{"input": {"question": "what is 12 + 30?", "answer": 42}, "mode": "train", "resources_id": null, "config": null, "metadata": null}]}`)
	var claimed []agl.AttemptedRollout
	claim := func() {
		var l []agl.AttemptedRollout
		if err := rawjson.Unmarshal(d.do(dequeue, []byte(`{"limit": 1, "worker_id": "w-1"}`), 200), &l); err != nil || len(l) == 0 {
			b.Fatal(err, len(l))
		}
		claimed = append(claimed, l[0])
	}
	d.do(enqueue, task, 201)
	claim()
	rolloutID, attemptID := claimed[0].RolloutID, claimed[0].Attempt.AttemptID

	var added agl.ResourcesUpdate
	body := d.do(request(b, "POST", "/resources"), []byte(`{"llm": {"resource_type": "llm", "endpoint": "http://localhost/v1", "model": "m", "api_key": null, "sampling_parameters": {"temperature": 1.0}}}`), 201)
	if err := rawjson.Unmarshal(body, &added); err != nil {
		b.Fatal(err)
	}

	sequence := int64(0)
	run := func(name string, f func(b *testing.B)) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			f(b)
		})
	}
	run("health", func(b *testing.B) {
		r := request(b, "GET", "/health")
		for b.Loop() {
			d.do(r, nil, 200)
		}
	})
	run("enqueue", func(b *testing.B) {
		for b.Loop() {
			d.do(enqueue, task, 201)
		}
	})
	run("dequeue", func(b *testing.B) {
		for range b.N {
			d.do(enqueue, task, 201)
		}
		b.ResetTimer()
		for range b.N {
			d.do(dequeue, []byte(`{"limit": 1, "worker_id": "w-1"}`), 200)
		}
	})
	run("resources", func(b *testing.B) {
		r := request(b, "GET", "/resources/"+added.ResourcesID)
		for b.Loop() {
			d.do(r, nil, 200)
		}
	})
	run("next", func(b *testing.B) {
		r := request(b, "POST", "/spans/next")
		doc := fmt.Appendf(nil, `{"rollout_id": %q, "attempt_id": %q}`, rolloutID, attemptID)
		for b.Loop() {
			d.do(r, doc, 200)
		}
	})
	run("span", func(b *testing.B) {
		r := request(b, "POST", "/spans")
		docs := make([][]byte, b.N)
		for i := range docs {
			sequence++
			docs[i] = longSpan(rolloutID, attemptID, fmt.Sprintf("%016x", sequence), sequence)
		}
		b.SetBytes(int64(len(docs[0])))
		b.ResetTimer()
		for _, doc := range docs {
			d.do(r, doc, 201)
		}
	})
	run("attempt", func(b *testing.B) {
		r := request(b, "POST", "/rollouts/"+rolloutID+"/attempts/"+attemptID)
		for b.Loop() {
			d.do(r, []byte(`{"status": "running"}`), 200)
		}
	})
	run("spans", func(b *testing.B) {
		r := request(b, "GET", "/spans?rollout_id="+rolloutID+"&attempt_id=latest&limit=8")
		for b.Loop() {
			d.do(r, nil, 200)
		}
	})
}

func BenchmarkObserve(b *testing.B) {
	m, err := server.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		m.ObserveStore("AddSpans", nil, 3*time.Microsecond)
	}
}
