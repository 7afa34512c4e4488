package tracer_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tracer"
)

// serve starts a server and a client that records.
func serve(t *testing.T, transport *tracer.Transport, handler http.HandlerFunc) (*http.Client, string) {
	t.Helper()
	server := httptest.NewServer(handler)
	base := &http.Transport{}
	transport.Base = base
	t.Cleanup(func() { base.CloseIdleConnections(); server.Close() })
	return &http.Client{Transport: transport}, server.URL
}

func post(ctx context.Context, t *testing.T, client *http.Client, url, body string) (int, string, error) {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	reply, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(reply), err
}

func golden(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// attributeLines renders attributes one per line, for golden files.
func attributeLines(spans []agl.Span) string {
	var b strings.Builder
	for _, s := range spans {
		fmt.Fprintf(&b, "%s %s\n", s.Name, s.Status.Code)
		for key, value := range s.Attributes.All() {
			fmt.Fprintf(&b, "  %s = %s\n", key, value)
		}
	}
	return b.String()
}

// lingering is a body whose Read returns once it is closed.
type lingering struct{ closed chan struct{} }

func (b lingering) Read(p []byte) (int, error) {
	<-b.closed
	return copy(p, "late"), io.EOF
}

func (b lingering) Close() error {
	close(b.closed)
	return nil
}

type roundTripper func(r *http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An agent may close a reply that another of its goroutines reads; the race
// detector watches.
func TestTransportClosedWhileRead(t *testing.T) {
	t.Parallel()
	transport := &tracer.Transport{Base: roundTripper(func(r *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: lingering{make(chan struct{})}, Request: r}, nil
	})}
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://model/v1/chat/completions", strings.NewReader(`{"model":"m"}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	var reading sync.WaitGroup
	reading.Go(func() {
		if got, err := io.ReadAll(resp.Body); string(got) != "late" || err != nil {
			t.Errorf("read %q, %v", got, err)
		}
	})
	if err := resp.Body.Close(); err != nil {
		t.Error(err)
	}
	reading.Wait()
	if spans := end(t, open); len(spans) != 2 {
		t.Errorf("%d spans, want one of the call and one of the attempt", len(spans))
	}
}

// A stream is whole once the event that ends it has come, however its connection ends.
func TestTransportBreaksOffAfterTheEnd(t *testing.T) {
	t.Parallel()
	client, url := serve(t, &tracer.Transport{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, golden(t, "stream.reply"))
		http.NewResponseController(w).Flush()
		panic(http.ErrAbortHandler)
	})
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	if _, _, err := post(ctx, t, client, url+"/v1/chat/completions", golden(t, "stream.request")); err == nil {
		t.Error("the connection did not break")
	}
	if failure := tracer.ModelFailure(ctx); failure != nil {
		t.Errorf("the call counts as failed: %v", failure)
	}
	if spans := end(t, open); len(spans) < 2 || spans[0].Status.Code != agl.StatusOK {
		t.Errorf("recorded as %+v", spans)
	}
}

func TestTransportRecords(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, contentType string }{
		{"chat", "application/json"},
		{"tools", "application/json"},
		{"stream", "text/event-stream; charset=utf-8"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			request, reply := golden(t, tc.name+".request"), golden(t, tc.name+".reply")
			client, url := serve(t, &tracer.Transport{}, func(w http.ResponseWriter, r *http.Request) {
				got, err := io.ReadAll(r.Body)
				if err != nil || string(got) != request || r.ContentLength != int64(len(request)) {
					t.Errorf("the server got %d bytes %q, %v", r.ContentLength, got, err)
				}
				w.Header().Set("Content-Type", tc.contentType)
				io.WriteString(w, reply)
			})
			ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
			status, got, err := post(ctx, t, client, url+"/v1/chat/completions", request)
			if err != nil || status != http.StatusOK || got != reply {
				t.Errorf("the agent got %d %q, %v", status, got, err)
			}
			if failure := tracer.ModelFailure(ctx); failure != nil {
				t.Errorf("failure is %v", failure)
			}
			spans := end(t, open)
			lines := attributeLines(spans[:len(spans)-1])
			if os.Getenv("UPDATE_GOLDEN") != "" {
				if err := os.WriteFile(filepath.Join("testdata", tc.name+".golden"), []byte(lines), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(golden(t, tc.name+".golden"), lines); diff != "" {
				t.Errorf("attributes (-want +got):\n%s", diff)
			}
			if len(spans) > 2 && spans[1].ParentID.V != spans[0].SpanID {
				t.Error("a tool call is not the child of its model call")
			}
		})
	}
}

// A streamed reply must reach the agent while the model still writes it.
func TestTransportStreamsLive(t *testing.T) {
	t.Parallel()
	seen := make(chan struct{})
	client, url := serve(t, &tracer.Transport{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}}]}\n\n")
		if err := http.NewResponseController(w).Flush(); err != nil {
			t.Error(err)
		}
		<-seen
		io.WriteString(w, "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"b\"}}]}\n\ndata: [DONE]\n\n")
	})
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/chat/completions", strings.NewReader(`{"stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	lines := bufio.NewReader(resp.Body)
	if first, err := lines.ReadString('\n'); err != nil || !strings.Contains(first, `"a"`) {
		t.Fatalf("first line is %q, %v", first, err)
	}
	close(seen)
	if _, err := io.Copy(io.Discard, lines); err != nil {
		t.Fatal(err)
	}
	if got, _ := end(t, open)[0].Attributes.GetString("gen_ai.completion.0.content"); got != "ab" {
		t.Errorf("content is %q", got)
	}
}

func TestTransportFailures(t *testing.T) {
	t.Parallel()
	openAIError := func(status int, code, message string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(status)
			fmt.Fprintf(w, `{"error":{"message":%q,"type":"x","code":%q}}`, message, code)
		}
	}
	raw := func(contentType, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			io.WriteString(w, body)
		}
	}
	for _, tc := range []struct {
		name    string
		handler http.HandlerFunc
		kind    agl.OutcomeKind
		message string
	}{
		{"server error", openAIError(500, "boom", "engine died"), agl.OutcomeModelError, "HTTP 500 Internal Server Error: engine died"},
		{"rate limit", openAIError(429, "rate", "slow down"), agl.OutcomeModelError, "HTTP 429 Too Many Requests: slow down"},
		{"wrong key", openAIError(401, "key", "no"), agl.OutcomeModelError, "HTTP 401 Unauthorized: no"},
		{"overflow by code", openAIError(400, "context_length_exceeded", "too long"), agl.OutcomeContextOverflow, "HTTP 400 Bad Request: too long"},
		{"budget", openAIError(429, "budget_exceeded", "3 calls are spent"), agl.OutcomeBudget, "HTTP 429 Too Many Requests: 3 calls are spent"},
		{"overflow by text", openAIError(400, "", "This model's maximum context length is 8 tokens"), agl.OutcomeContextOverflow, "maximum context length"},
		{"bad request", openAIError(400, "invalid", "temperature"), "", "HTTP 400 Bad Request: temperature"},
		{"error as text", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "bad gateway", http.StatusBadGateway) }, agl.OutcomeModelError, "HTTP 502 Bad Gateway: bad gateway"},
		{"redirect", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Location", "/elsewhere")
			w.WriteHeader(http.StatusMovedPermanently)
			io.WriteString(w, "<html>moved</html>")
		}, agl.OutcomeModelError, `HTTP 301 Moved Permanently to "/elsewhere": the base URL must be the one that answers itself`},
		{"garbage", raw("application/json", "<html>"), agl.OutcomeModelError, "not a JSON object"},
		{"no choices", raw("application/json", "{}"), agl.OutcomeModelError, "no choices"},
		{"garbage in a stream", raw("text/event-stream", "data: {\"choices\":[]}\n\ndata: nonsense\n\n"), agl.OutcomeModelError, "not a JSON object"},
		{"error in a stream", raw("text/event-stream", "data: {\"error\":{\"message\":\"oom\"}}\n\n"), agl.OutcomeModelError, "oom"},
		{"connection breaks", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, "{")
			if err := http.NewResponseController(w).Flush(); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		}, agl.OutcomeModelError, "unexpected EOF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			client, url := serve(t, &tracer.Transport{}, tc.handler)
			ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
			_, _, _ = post(ctx, t, client, url+"/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
			failure := tracer.ModelFailure(ctx)
			if tc.kind == "" && failure != nil || tc.kind != "" && (failure == nil || failure.Kind != tc.kind) {
				t.Errorf("failure is %+v, want %s", failure, tc.kind)
			}
			got := end(t, open)[0]
			if got.Status.Code != agl.StatusError || !strings.Contains(got.Status.Description.V, tc.message) || len(got.Events) != 1 {
				t.Errorf("status is %+v with events %v", got.Status, got.Events)
			}
			if prompt, _ := got.Attributes.GetString("gen_ai.prompt.0.content"); prompt != "hi" {
				t.Errorf("prompt is %q", prompt)
			}
		})
	}
}

// Some servers send an empty error with each answer, or with each event of a stream.
func TestTransportEmptyError(t *testing.T) {
	t.Parallel()
	for contentType, body := range map[string]string{
		"application/json":  `{"error":{},"choices":[{"index":0,"message":{"content":"a"}}]}`,
		"text/event-stream": `data: {"error":{},"choices":[{"index":0,"delta":{"content":"a"}}]}` + "\n\ndata: [DONE]\n\n",
	} {
		client, url := serve(t, &tracer.Transport{}, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", contentType)
			io.WriteString(w, body)
		})
		ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
		_, _, _ = post(ctx, t, client, url+"/chat/completions", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`)
		if got := end(t, open)[0]; got.Status.Code != agl.StatusOK || tracer.ModelFailure(ctx) != nil {
			t.Errorf("%s: status is %+v, failure %v", contentType, got.Status, tracer.ModelFailure(ctx))
		}
	}
}

type refusing struct{}

func (refusing) RoundTrip(*http.Request) (*http.Response, error) {
	return nil, errors.New("connection refused")
}

func TestTransportWithoutReply(t *testing.T) {
	t.Parallel()
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	client := &http.Client{Transport: &tracer.Transport{Base: refusing{}}}
	if _, _, err := post(ctx, t, client, "http://model.invalid/v1/chat/completions", `{}`); err == nil {
		t.Error("the error is swallowed")
	}
	if failure := tracer.ModelFailure(ctx); failure == nil || failure.Kind != agl.OutcomeModelError {
		t.Errorf("failure is %v", failure)
	}
	cancelled, cancel := context.WithCancel(ctx)
	cancel()
	if _, _, err := post(cancelled, t, client, "http://model.invalid/v1/chat/completions", `{}`); err == nil {
		t.Error("the error is swallowed")
	}
	if failure := tracer.ModelFailure(ctx); failure != nil {
		t.Errorf("a call that the agent gave up is no failure of the model: %v", failure)
	}
	end(t, open)
}

func TestTransportCaptureIsBounded(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 5000)
	request := `{"messages":[{"role":"user","content":"` + long + `"}]}`
	reply := `{"choices":[{"message":{"role":"assistant","content":"` + long + `"}}]}`
	client, url := serve(t, &tracer.Transport{MaxCaptureBytes: 1000}, func(w http.ResponseWriter, r *http.Request) {
		if got, err := io.ReadAll(r.Body); err != nil || string(got) != request {
			t.Errorf("the server got %d bytes, %v", len(got), err)
		}
		io.WriteString(w, reply)
	})
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	if _, got, err := post(ctx, t, client, url+"/chat/completions", request); err != nil || got != reply {
		t.Errorf("the agent got %d bytes, %v", len(got), err)
	}
	span := end(t, open)[0]
	if truncated, _ := span.Attributes.GetBool("agentlightning.capture.truncated"); !truncated || span.Status.Code != agl.StatusOK {
		t.Errorf("span is %s %s", span.Status.Code, span.Attributes)
	}
}

func TestTransportLeavesOthersAlone(t *testing.T) {
	t.Parallel()
	store := &spanStore{}
	client, url := serve(t, &tracer.Transport{}, func(w http.ResponseWriter, r *http.Request) {
		io.Copy(w, r.Body)
	})
	ctx, open := start(t, newTracer(t, tracer.Config{Store: store}))
	if _, got, err := post(ctx, t, client, url+"/v1/embeddings", "a"); err != nil || got != "a" {
		t.Errorf("got %q, %v", got, err)
	}
	for _, path := range []string{"/channels/1/messages", "/surveys/1/responses"} {
		if _, got, err := post(ctx, t, client, url+path, `{"content":"hello"}`); err != nil || got != `{"content":"hello"}` {
			t.Errorf("got %q, %v", got, err)
		}
	}
	if failure := tracer.ModelFailure(ctx); failure != nil {
		t.Errorf("a model is blamed: %v", failure)
	}
	if _, got, err := post(t.Context(), t, client, url+"/v1/chat/completions", "b"); err != nil || got != "b" {
		t.Errorf("got %q, %v", got, err)
	}
	if spans := end(t, open); len(spans) != 0 {
		t.Errorf("recorded %v", names(spans))
	}
}

func TestTransportUnpacksWhatItRecords(t *testing.T) {
	t.Parallel()
	var packed bytes.Buffer
	z := gzip.NewWriter(&packed)
	if _, err := z.Write([]byte(`{"choices":[{"message":{"role":"assistant","content":"hi"}}]}`)); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	client, url := serve(t, &tracer.Transport{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		w.Write(packed.Bytes())
	})
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/chat/completions", strings.NewReader(`{}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip") // so that net/http does not unpack
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(resp.Body)
	if err != nil || !bytes.Equal(got, packed.Bytes()) {
		t.Errorf("the agent got %q, %v", got, err)
	}
	resp.Body.Close()
	if content, _ := end(t, open)[0].Attributes.GetString("gen_ai.completion.0.content"); content != "hi" {
		t.Errorf("content is %q", content)
	}
}

// A reply that the client decompresses by itself cannot be read here, which is no failure of the model.
func TestTransportUnknownEncoding(t *testing.T) {
	t.Parallel()
	client, url := serve(t, &tracer.Transport{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "br")
		io.WriteString(w, "compressed")
	})
	ctx, open := start(t, newTracer(t, tracer.Config{Store: &spanStore{}}))
	if _, got, err := post(ctx, t, client, url+"/chat/completions", `{}`); err != nil || got != "compressed" {
		t.Errorf("the agent got %q, %v", got, err)
	}
	if failure := tracer.ModelFailure(ctx); failure != nil {
		t.Errorf("the model is blamed: %v", failure)
	}
	span := end(t, open)[0]
	if truncated, _ := span.Attributes.GetBool("agentlightning.capture.truncated"); !truncated || span.Status.Code != agl.StatusOK {
		t.Errorf("span is %s %s", span.Status.Code, span.Attributes)
	}
}
