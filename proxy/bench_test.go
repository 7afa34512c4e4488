//go:build unix

package proxy_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
)

// sink takes spans and drops them.
type sink struct {
	agl.UnimplementedStore

	calls atomic.Int64
}

func (s *sink) AddSpans(_ context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	s.calls.Add(int64(len(p.Spans) / 3))
	return agl.AddSpansResult{}, nil
}

func (s *sink) ReserveSequenceIDs(context.Context, agl.ReserveSequenceIDsParams) (int64, error) {
	return 1, nil
}

// BenchmarkCPU compares the CPU time that a call costs in the proxy with what
// it costs in httputil.ReverseProxy, both with the same backend and client in
// this process; what a call without any proxy costs is taken off. The metric
// to look at is x-reverseproxy.
func BenchmarkCPU(b *testing.B) {
	text := strings.Repeat("All happy families are alike. ", 1300) // 39 KB
	for _, bench := range []struct {
		name  string
		body  string
		reply proxytest.Reply
	}{
		{"small", hello, proxytest.Reply{Body: replyOf("Hello!", 6)}},
		{"39KB", hello, proxytest.Reply{Body: replyOf(text, 0)}},
		{"39KB-ids", hello, proxytest.Reply{Body: replyOf(text[:15000], 4000)}},
		{"stream-100", strings.Replace(hello, "{", `{"stream":true,`, 1), proxytest.Reply{ContentType: "text/event-stream", Pieces: chunksOf(100)}},
	} {
		b.Run(bench.name, func(b *testing.B) {
			backend := serve(b, func(context.Context, proxytest.Request) proxytest.Reply { return bench.reply })
			target, err := url.Parse(backend.URL)
			if err != nil {
				b.Fatal(err)
			}
			reverse := httputil.NewSingleHostReverseProxy(target)
			reverse.Transport = &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
			bare := httptest.NewServer(reverse)
			defer bare.Close()
			store := &sink{}
			g := start(b, backend.BaseURL(), func(c *proxy.Config) { c.Spans = store })
			load := func(base string) float64 {
				before := cpuTime(b)
				drive(b, base, bench.body, b.N)
				return float64(cpuTime(b)-before) / float64(b.N)
			}
			load(g.URL) // warm up
			var direct, plain, ours float64
			const rounds = 3
			b.ResetTimer()
			for range rounds {
				direct += load(backend.URL) / rounds
				plain += load(bare.URL) / rounds
				ours += load(g.URL) / rounds
			}
			b.StopTimer()
			b.ReportMetric(0, "ns/op")
			b.ReportMetric((plain-direct)/1e3, "reverseproxy-µs")
			b.ReportMetric((ours-direct)/1e3, "proxy-µs")
			b.ReportMetric((ours-direct)/(plain-direct), "x-reverseproxy")
			if err := g.Flush(b.Context(), nil); err != nil {
				b.Fatal(err)
			}
			if got, want := store.calls.Load(), int64((rounds+1)*b.N); got != want {
				b.Fatalf("%d calls recorded, want %d", got, want)
			}
		})
	}
}

func replyOf(text string, tokens int) string {
	ids := strings.Repeat("12345,", max(tokens-1, 0)) + "1"
	return fmt.Sprintf(`{"id":"chatcmpl-0","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},"logprobs":null,"finish_reason":"stop","token_ids":[%s]}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2},"prompt_token_ids":[1,2,3]}`, text, ids)
}

func chunksOf(n int) []string {
	var pieces []string
	for i := range n {
		pieces = append(pieces, fmt.Sprintf("data: {\"id\":\"chatcmpl-0\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},\"logprobs\":{\"content\":[{\"token\":\" word\",\"logprob\":-0.5,\"bytes\":[32,119],\"top_logprobs\":[]}]},\"finish_reason\":null,\"token_ids\":[%d]}]}\n\n", i))
	}
	return append(pieces, "data: [DONE]\n\n")
}

// drive makes n calls over 64 connections.
func drive(b *testing.B, base, body string, n int) {
	b.Helper()
	const connections = 64
	transport := &http.Transport{MaxIdleConnsPerHost: connections, DisableCompression: true}
	defer transport.CloseIdleConnections()
	var left atomic.Int64
	left.Store(int64(n))
	var group sync.WaitGroup
	for worker := range connections {
		group.Go(func() {
			address := fmt.Sprintf("%s/rollout/r%d/attempt/a/v1/chat/completions", base, worker)
			for left.Add(-1) >= 0 {
				req, err := http.NewRequestWithContext(b.Context(), http.MethodPost, address, strings.NewReader(body))
				if err != nil {
					b.Error(err)
					return
				}
				res, err := transport.RoundTrip(req)
				if err != nil {
					b.Error(err)
					return
				}
				if _, err := io.Copy(io.Discard, res.Body); err != nil || res.StatusCode != http.StatusOK {
					b.Errorf("%d %v", res.StatusCode, err)
				}
				res.Body.Close()
			}
		})
	}
	group.Wait()
}

func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFirstByte measures the time that the proxy adds to one call at a time.
func BenchmarkFirstByte(b *testing.B) {
	backend := serve(b, func(context.Context, proxytest.Request) proxytest.Reply {
		return proxytest.Reply{Body: replyOf("Hello!", 6)}
	})
	g := start(b, backend.BaseURL(), func(c *proxy.Config) { c.Spans = &sink{} })
	for name, base := range map[string]string{"direct": backend.URL, "proxy": g.URL} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				post(b, base+attemptPath, hello)
			}
		})
	}
}
