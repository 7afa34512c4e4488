package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
)

// Long requests share memory one after the other. Each backend gets the request of its own call, and so does each record. A
// transport that goes on to read a request after its call has ended, because the backend replied early, gets nothing.
func TestLongRequests(t *testing.T) {
	t.Parallel()
	const agents, turns = 6, 12
	content := func(agent, turn int) string {
		return strings.Repeat(fmt.Sprintf("agent %d turn %d ", agent, turn), 3000+1500*((agent+turn)%12))
	}
	var mu sync.Mutex
	var late []io.Reader
	store := &spans{}
	p := unplugged(t, func(r *http.Request) (string, error) {
		if r.Header.Get("X-Request-ID") == "late" {
			_, err := io.ReadFull(r.Body, make([]byte, 100))
			mu.Lock()
			defer mu.Unlock()
			late = append(late, r.Body)
			return completion("c", []int{1}, []int{2}), err
		}
		var request struct {
			Messages []struct {
				Content string `json:"content"`
			} `json:"messages"`
		}
		body, err := io.ReadAll(r.Body)
		if err == nil {
			err = json.Unmarshal(body, &request)
		}
		if err == nil && (len(request.Messages) != 1 || r.ContentLength != int64(len(body)) || request.Messages[0].Content != r.Header.Get("X-Session-Id")) {
			err = fmt.Errorf("the backend got %.200q", body)
		}
		return completion("c", []int{1}, []int{2}), err
	}, store, func(c *proxy.Config) { c.Retry.Attempts = 1 })
	var running sync.WaitGroup
	for agent := range agents {
		running.Go(func() {
			for turn := range turns {
				text := content(agent, turn)
				r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, fmt.Sprintf("/rollout/ro-%d/attempt/at/v1/chat/completions", agent),
					strings.NewReader(fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, text)))
				r.Header.Set("X-Session-Id", text)
				if turn%3 == 0 {
					r.Header.Set("X-Request-ID", "late")
				}
				w := httptest.NewRecorder()
				p.ServeHTTP(w, r)
				if w.Code != http.StatusOK {
					t.Errorf("agent %d, turn %d: got %d %.200s", agent, turn, w.Code, w.Body)
				}
			}
		})
	}
	running.Wait()
	closed(t, p)
	for _, body := range late {
		if n, err := body.Read(make([]byte, 100)); n > 0 || err == nil || err == io.EOF {
			t.Errorf("after its call a transport read %d bytes, %v", n, err)
		}
	}
	seen := map[string]int{}
	for _, call := range store.calls() {
		text, _ := call.Attributes.GetString(agl.AttrGenAIPrompt + ".0.content")
		seen[call.RolloutID+text]++
	}
	for agent := range agents {
		for turn := range turns {
			if n := seen[fmt.Sprintf("ro-%d", agent)+content(agent, turn)]; n != 1 {
				t.Errorf("agent %d, turn %d: %d records have its request", agent, turn, n)
			}
		}
	}
}

// A short request reaches its backend in one write, so that the backend need not wait for its body. A long one is not copied.
func TestWritesOfRequests(t *testing.T) {
	t.Parallel()
	backend := serve(t, proxytest.VLLM(echo))
	for _, tt := range []struct{ length, writes int }{{1, 1}, {3000, 1}, {5000, 2}} {
		var writes atomic.Int64
		transport := proxy.NewTransport()
		dial := transport.DialContext
		transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := dial(ctx, network, address)
			return &countedConn{conn, &writes}, err
		}
		t.Cleanup(transport.CloseIdleConnections)
		g := start(t, backend.BaseURL(), func(c *proxy.Config) { c.Transport = transport })
		got := post(t, g.URL+attemptPath, fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}]}`, strings.Repeat("x", tt.length)))
		if n := writes.Load(); got.status != http.StatusOK || n != int64(tt.writes) {
			t.Errorf("a request of %d bytes and more: %d, sent in %d writes, want %d", tt.length, got.status, n, tt.writes)
		}
	}
}

// countedConn counts the writes to a connection.
type countedConn struct {
	net.Conn
	writes *atomic.Int64
}

func (c *countedConn) Write(p []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(p)
}
