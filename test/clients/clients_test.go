package clients

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/test/process"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// said is the model's reply to most prompts. A careless translation would change it.
const said = "One\n\n  two\t\u00e9\U0001f600 \"three\"  "

// model calls tools if it is offered some and has no results, and describes the prompt.
func model(p proxytest.Prompt, _ int) proxytest.Answer {
	switch {
	case len(p.Results) > 0:
		return proxytest.Answer{Text: "It is " + strings.Join(p.Results, " and ")}
	case len(p.Tools) > 0:
		a := proxytest.Answer{Text: "Let me look.", Calls: []proxytest.Call{{Name: "look", Arguments: `{"city": "Paris"}`}}}
		if p.Parallel {
			a.Calls = append(a.Calls, proxytest.Call{Name: "look", Arguments: `{"city": "S\u00e3o Paulo"}`})
		}
		return a
	case len(p.Images) > 0:
		return proxytest.Answer{Text: "I see " + strings.Join(p.Images, " ")}
	}
	return proxytest.Answer{Text: said}
}

// bench is a proxy in front of all kinds of backends.
type bench struct {
	url     string // of an attempt's prefix, whose rollout id has a slash
	key     string // needed by every call
	proxy   *proxy.Proxy
	spans   *spans
	stalled *proxytest.Server
	served  func() int // generating calls that the backends have answered
}

// served is a model and what serves it.
type served struct {
	name   string
	script proxytest.Script
	model  proxy.Model
}

// backendKey is the key of the backends that require one.
const backendKey = "backend-" + process.Canary

// backends returns backends of all kinds. Their streams arrive in arbitrary pieces.
var backends = []served{
	{"vllm", proxytest.Chopped(proxytest.Model(model).VLLM(), 7), proxy.Model{}},
	{"oldvllm", proxytest.Model(model).OldVLLM(), proxy.Model{}},
	{"sglang", proxytest.Model(model).SGLang(), proxy.Model{}},
	{"openai", proxytest.Chopped(proxytest.Model(model).OpenAI(), 11), proxy.Model{TextOnly: true}},
	{"azure", proxytest.Model(model).OpenAI(), proxy.Model{API: proxy.APIAzure, APIKey: backendKey}},
	{"claude", proxytest.Chopped(proxytest.Model(model).Anthropic(), 5), proxy.Model{API: proxy.APIAnthropic, APIKey: backendKey}},
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{spans: &spans{}}
	var models []proxy.Model
	var servers []*proxytest.Server
	add := func(name string, script proxytest.Script, m proxy.Model) *proxytest.Server {
		server := proxytest.NewServer(script)
		t.Cleanup(server.Close)
		m.Name, m.BaseURL = name, server.BaseURL()
		if m.API == proxy.APIAzure {
			m.BaseURL = server.URL
		}
		models = append(models, m)
		return server
	}
	for _, x := range backends {
		servers = append(servers, add(x.name, x.script, x.model))
	}
	add("limited", proxytest.TooMany(7), proxy.Model{})
	add("failing", proxytest.Fails(http.StatusBadRequest, "the prompt is too long"), proxy.Model{})
	b.stalled = add("stalled", proxytest.Stall(proxytest.Model(model).VLLM(), 4), proxy.Model{})
	// Programs ask it whether the backend had a call that ran into its timeout.
	add("arrived", proxytest.Model(func(proxytest.Prompt, int) proxytest.Answer {
		return proxytest.Answer{Text: strconv.Itoa(len(b.stalled.Requests()))}
	}).VLLM(), proxy.Model{})
	for _, f := range faults() {
		add(f.name, f.script, proxy.Model{})
	}
	keys := access.NewKeys(memorytest.Open(t))
	created, err := keys.Create(t.Context(), access.NewKey{Name: "agent", Scopes: access.Agent, Attempt: agl.Some(agl.Claim{RolloutID: "ro/1", AttemptID: "at-1"})})
	if err != nil {
		t.Fatal(err)
	}
	b.key = created.Text
	said := &log{}
	p, err := proxy.New(proxy.Config{
		Models: models, Spans: b.spans, Retry: proxy.Retry{Attempts: 1}, Access: keys, RequireKeys: true, LogCalls: true,
		Logger: slog.New(slog.NewTextHandler(said, &slog.HandlerOptions{Level: slog.LevelDebug})),
	})
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
		b.silent(t, said)
	})
	b.proxy, b.url = p, server.URL+"/rollout/ro%2F1/attempt/at-1"
	b.served = func() (n int) {
		for _, s := range servers {
			for _, r := range s.Requests() {
				if !strings.Contains(r.Path, "embeddings") && !strings.Contains(r.Path, "count_tokens") && !strings.Contains(r.Path, "tokenize") {
					n++
				}
			}
		}
		return n
	}
	return b
}

// silent looks for secrets in the proxy's log and in its records: those of the backends, and the key of the calls.
func (b *bench) silent(t *testing.T, said *log) {
	t.Helper()
	var records strings.Builder
	b.spans.mu.Lock()
	for _, s := range b.spans.stored {
		records.Write(s.AppendJSON(nil))
	}
	b.spans.mu.Unlock()
	said.mu.Lock()
	defer said.mu.Unlock()
	if said.text.Len() == 0 || records.Len() == 0 {
		t.Errorf("looked at a log of %d bytes and records of %d", said.text.Len(), records.Len())
	}
	for where, text := range map[string]string{"the log of the proxy": said.text.String(), "the records": records.String()} {
		process.Silent(t, where, []byte(text))
		if strings.Contains(text, b.key) {
			t.Errorf("%s have the key of the calls", where)
		}
	}
}

// log keeps the log of a proxy.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// check compares the records with the calls that the backends served. Each call must be
// recorded once, with token ids if its backend is an engine. left is the number of calls
// that the clients gave up.
func (b *bench) check(t *testing.T, left int) {
	t.Helper()
	deadline := time.After(2 * time.Minute) // only a failure takes so long
	for i := range left {
		select {
		case <-b.stalled.Gone():
		case <-deadline:
			t.Fatalf("%d of %d calls that were given up reached the backend", i, left)
		}
	}
	if err := b.proxy.Flush(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	recorded := 0 // requests to the backends
	for _, s := range b.spans.named(agl.SpanLiteLLMRequest) {
		name, _ := s.Attributes.GetString(agl.AttrGenAIRequest + ".model")
		if !slices.ContainsFunc(backends, func(x served) bool { return x.name == name }) {
			continue
		}
		if source, _ := s.Attributes.GetString(record.AttrErrorSource); source == proxy.SourceGateway {
			continue // it never got to a backend
		}
		if tries, _ := s.Attributes.GetInt(record.AttrTries); tries > 1 {
			recorded += int(tries) // SGLang refused the first stream
		} else {
			recorded++
		}
		if s.RolloutID != "ro/1" || s.AttemptID != "at-1" {
			t.Errorf("recorded for %q %q", s.RolloutID, s.AttemptID)
		}
		if s.Status.Code != agl.StatusOK {
			t.Errorf("%s: recorded as %+v", name, s.Status)
		}
		ids, _ := s.Attributes.GetInts(agl.AttrResponseTokenIDs)
		engine := name == "vllm" || name == "oldvllm" || name == "sglang"
		if engine != (len(ids) > 0) {
			t.Errorf("%s: %d token ids in %.300s", name, len(ids), s.Attributes)
		}
	}
	b.checkFaults(t)
	if served := b.served(); recorded != served || served == 0 {
		t.Errorf("%d requests recorded, %d served", recorded, served)
	}
}

// spans is a store that keeps only spans.
type spans struct {
	agl.UnimplementedStore

	mu     sync.Mutex
	next   int64
	stored []agl.Span
}

func (s *spans) AddSpans(_ context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range p.Spans { // a store copies what it keeps
		var kept agl.Span
		if err := rawjson.Unmarshal(p.Spans[i].AppendJSON(nil), &kept); err != nil {
			return agl.AddSpansResult{}, err
		}
		s.stored = append(s.stored, kept)
	}
	return agl.AddSpansResult{Stored: p.Spans}, nil
}

func (s *spans) ReserveSequenceIDs(_ context.Context, p agl.ReserveSequenceIDsParams) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	first := s.next + 1
	s.next += int64(max(p.Count, 1))
	return first, nil
}

func (s *spans) named(name string) (found []agl.Span) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sp := range s.stored {
		if sp.Name == name {
			found = append(found, sp)
		}
	}
	return found
}

// run runs a client program. It ends with an error if one of its checks fails, and its last
// output is the number of calls that it gave up.
func run(t *testing.T, b *bench, env []string, name string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Env = append(append(os.Environ(), env...), "PROXY_URL="+b.url, "API_KEY="+b.key, "MODEL_SAYS="+said, "WHOLE="+names(whole), "FAILED="+names(failed))
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, stderr.Bytes())
	}
	left := 0
	if _, err := fmt.Sscanf(string(out), "left %d", &left); err != nil {
		t.Fatalf("the program said %q: %v", out, err)
	}
	b.check(t, left)
}

func installed(t *testing.T, variable string) string {
	t.Helper()
	at := os.Getenv(variable)
	if at == "" {
		t.Skip(variable + " does not say where the clients are; test/clients/setup.sh installs them")
	}
	return at
}

func TestPython(t *testing.T) {
	t.Parallel()
	venv := installed(t, "AGL_CLIENTS_VENV")
	for _, program := range []string{"openai_client.py", "anthropic_client.py"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			run(t, newBench(t), []string{"PYTHONDONTWRITEBYTECODE=1"}, filepath.Join(venv, "bin", "python"), filepath.Join("python", program))
		})
	}
}

func TestNode(t *testing.T) {
	t.Parallel()
	modules := installed(t, "AGL_CLIENTS_NODE")
	for _, program := range []string{"openai_client.mjs", "anthropic_client.mjs"} {
		t.Run(program, func(t *testing.T) {
			t.Parallel()
			// Modules are looked for beside the program.
			at := filepath.Join(t.TempDir(), program)
			source, err := os.ReadFile(filepath.Join("node", program))
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(at, source, 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.Symlink(filepath.Join(modules, "node_modules"), filepath.Join(filepath.Dir(at), "node_modules")); err != nil {
				t.Fatal(err)
			}
			run(t, newBench(t), nil, "node", at)
		})
	}
}
