package proxy_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/proxy/record"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// spans is a store of spans and nothing else.
type spans struct {
	agl.UnimplementedStore

	mu      sync.Mutex
	next    map[string]int64
	stored  []agl.Span
	writes  int
	refuse  func(spans []agl.Span) error // before a write
	reserve func() error                 // before sequence ids are given
}

func (s *spans) AddSpans(_ context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.refuse != nil {
		if err := s.refuse(p.Spans); err != nil {
			return agl.AddSpansResult{}, err
		}
	}
	for i := range p.Spans {
		if p.IssueSequenceIDs && p.Spans[i].SequenceID == 0 {
			p.Spans[i].SequenceID = s.issue(p.Spans[i].RolloutID, 1)
		}
		// What cannot be read back is not stored.
		var read agl.Span
		if err := rawjson.Unmarshal(p.Spans[i].AppendJSON(nil), &read); err != nil {
			return agl.AddSpansResult{}, agl.Errorf(agl.CodeInvalid, "span %d: %w", i, err)
		}
		s.stored = append(s.stored, read)
	}
	s.writes++
	return agl.AddSpansResult{Stored: p.Spans}, nil
}

func (s *spans) ReserveSequenceIDs(_ context.Context, p agl.ReserveSequenceIDsParams) (int64, error) {
	if s.reserve != nil {
		if err := s.reserve(); err != nil {
			return 0, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.issue(p.RolloutID, max(p.Count, 1)), nil
}

// issue gives out sequence ids. The lock is held.
func (s *spans) issue(rolloutID string, count int) (first int64) {
	if s.next == nil {
		s.next = make(map[string]int64)
	}
	first = s.next[rolloutID] + 1
	s.next[rolloutID] += int64(count)
	return first
}

// calls returns the spans named litellm_request, which stand for the calls.
func (s *spans) calls() []agl.Span { return s.named(agl.SpanLiteLLMRequest) }

func (s *spans) named(name string) []agl.Span {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found []agl.Span
	for _, sp := range s.stored {
		if sp.Name == name {
			found = append(found, sp)
		}
	}
	return found
}

// gateway is a proxy that listens.
type gateway struct {
	*proxy.Proxy
	*httptest.Server
	spans *spans
}

// start runs a proxy with the model "m" at the backend, changed by edit.
func start(t testing.TB, backend string, edit func(c *proxy.Config)) *gateway {
	t.Helper()
	store := &spans{}
	cfg := proxy.Config{Models: []proxy.Model{{Name: "m", BaseURL: backend, Version: "v1"}}, Spans: store}
	if edit != nil {
		edit(&cfg)
	}
	p, err := proxy.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	p.Start(context.WithoutCancel(t.Context()))
	server := httptest.NewServer(p)
	t.Cleanup(func() {
		if err := p.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("close: %v", err)
		}
		server.Close()
	})
	return &gateway{Proxy: p, Server: server, spans: store}
}

func serve(t testing.TB, script func(ctx context.Context, r proxytest.Request) proxytest.Reply) *proxytest.Server {
	t.Helper()
	s := proxytest.NewServer(script)
	t.Cleanup(s.Close)
	return s
}

func echo(prompt string, choice int) string {
	return strings.ToUpper(prompt) + strings.Repeat("!", choice)
}

type reply struct {
	status int
	header http.Header
	body   []byte
}

func post(t testing.TB, url, body string) reply {
	t.Helper()
	r, err := send(t.Context(), url, body)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func send(ctx context.Context, url, body string) (reply, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		return reply{}, err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer res.Body.Close()
	got, err := io.ReadAll(res.Body)
	return reply{res.StatusCode, res.Header, got}, err
}

func flush(t testing.TB, g *gateway, ids ...string) {
	t.Helper()
	if err := g.Flush(t.Context(), ids); err != nil {
		t.Fatal(err)
	}
}

const attemptPath = "/rollout/ro-1/attempt/at-1/v1/chat/completions"

// The agent must get, byte for byte, what the backend says to one that asks for
// nothing more than the agent did.
func TestRepliesAreWhatTheAgentAskedFor(t *testing.T) {
	t.Parallel()
	for name, body := range map[string]string{
		"whole":                `{"model":"m","messages":[{"role":"user","content":"hé\n😀"}]}`,
		"whole, n":             `{"messages":[{"role":"user","content":"hi"}],"n":3,"model":"m"}`,
		"whole, asked":         `{"model":"m","messages":[{"role":"user","content":"hi"}],"logprobs":true,"return_token_ids":true}`,
		"whole, ids asked":     `{"model":"m","messages":[{"role":"user","content":"hi"}],"logprobs":false,"return_token_ids":true}`,
		"stream":               `{"model":"m","stream":true,"messages":[{"role":"user","content":"hé\n😀"}]}`,
		"stream, n":            `{"model":"m","stream":true,"n":2,"messages":[{"role":"user","content":"hi"}]}`,
		"stream, usage":        `{"model":"m","stream":true,"stream_options":{"include_usage":true},"messages":[{"role":"user","content":"hi"}]}`,
		"stream, logprobs":     `{"model":"m","stream":true,"logprobs":true,"messages":[{"role":"user","content":"hi"}]}`,
		"stream, logprobs nul": `{"model":"m","stream":true,"logprobs":null,"return_token_ids":false,"messages":[{"role":"user","content":"hi"}]}`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			want := post(t, serve(t, proxytest.VLLM(echo)).URL+"/v1/chat/completions", body)
			backend := serve(t, proxytest.VLLM(echo))
			g := start(t, backend.BaseURL(), nil)
			got := post(t, g.URL+attemptPath, body)
			if got.status != 200 || !bytes.Equal(got.body, want.body) {
				t.Errorf("got %d\n%s\nwant\n%s", got.status, got.body, want.body)
			}
			if a, b := got.header.Get("Content-Type"), want.header.Get("Content-Type"); a != b {
				t.Errorf("Content-Type %q, want %q", a, b)
			}
			flush(t, g, "ro-1")
			calls := g.spans.calls()
			if len(calls) != 1 {
				t.Fatalf("recorded %d calls", len(calls))
			}
			prompt, _ := calls[0].Attributes.GetInts(agl.AttrPromptTokenIDs)
			replyIDs, _ := calls[0].Attributes.GetInts(agl.AttrResponseTokenIDs)
			if len(prompt) == 0 || len(replyIDs) == 0 {
				t.Errorf("no token ids in %s", calls[0].Attributes)
			}
			if content, _ := calls[0].Attributes.GetString(agl.AttrLogprobsContent); strings.Count(content, "-0.5") != len(replyIDs) {
				t.Errorf("log-probabilities %q for %d tokens", content, len(replyIDs))
			}
			if d, _ := calls[0].Attributes.GetBool(record.AttrDelivered); !d {
				t.Error("not delivered")
			}
		})
	}
}
