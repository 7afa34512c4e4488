package recording

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/test/process"
)

// The flags of the tests; `make proxy-soak` gives the numbers of a long run.
var (
	callsFlag = flag.Int("calls", 3000, "how many calls are made")
	killsFlag = flag.Int("kills", 4, "how often the store is killed meanwhile")
	seedFlag  = flag.Uint64("seed", 0, "what decides what fails; 0 picks one")
)

// aglBinary is the real agl command, built by TestMain.
var aglBinary string

func TestMain(m *testing.M) {
	if dir := os.Getenv(proxyDir); dir != "" {
		if err := serveProxy(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	flag.Parse()
	code := process.Main(m, &aglBinary)
	if code == 0 {
		http.DefaultTransport.(*http.Transport).CloseIdleConnections()
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// kinds are the ways in which a call can go. The agent's message names the kind, and the
// backend behaves accordingly.
var kinds = []string{"whole", "whole", "stream", "stream", "error", "overloaded", "reset", "broken-stream", "malformed", "not-json", "leave"}

// backend plays vLLM with its faults.
func backend(ctx context.Context, r proxytest.Request) proxytest.Reply {
	good := proxytest.VLLM(func(prompt string, _ int) string { return "re: " + prompt })(ctx, r)
	for _, kind := range kinds {
		if !strings.Contains(string(r.Body), `"`+kind+" ") {
			continue
		}
		switch kind {
		case "error":
			return proxytest.Reply{Status: http.StatusBadRequest, Body: `{"error":{"message":"no","type":"BadRequestError"}}`}
		case "overloaded":
			return proxytest.TooMany(0)(ctx, r)
		case "reset":
			return proxytest.Reply{Reset: true}
		case "broken-stream":
			good.Pieces, good.Cut = good.Pieces[:len(good.Pieces)/2], true
		case "malformed":
			good.Pieces[1] = "data: {\"choices\":[\n\n"
		case "not-json":
			return proxytest.Reply{ContentType: "text/html", Body: "<html>"}
		case "leave":
			good.Step = func(ctx context.Context, i int) error {
				if i < 2 {
					return nil
				}
				<-ctx.Done()
				return ctx.Err()
			}
		}
	}
	return good
}

// agent makes calls of attempts through a proxy and counts them.
type agent struct {
	client *http.Client
	proxy  string
	number atomic.Int64

	mu        sync.Mutex
	histories map[string][]string // the messages of each attempt
	sent      map[string][]string // the messages of each call, by the last one
}

// longest is how many messages a history has before the agent begins anew.
const longest = 40

// messages returns the messages of the next call of an attempt: its history, so that the record is kept
// as a delta of the previous one, and a message that names the kind.
func (a *agent) messages(attemptID, kind string) []string {
	n := a.number.Add(1)
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.sent == nil {
		a.histories, a.sent = make(map[string][]string), make(map[string][]string)
	}
	history := a.histories[attemptID]
	last := fmt.Sprintf("%s %d", kind, n)
	messages := append(slices.Clip(history), last)
	a.sent[last] = messages
	if len(history) == longest {
		history = nil
	}
	a.histories[attemptID] = append(slices.Clip(history), "said "+strings.Repeat(fmt.Sprint(n, " "), 60))
	return messages
}

// sentAs checks that a record has the messages of its call.
func (a *agent) sentAs(span *agl.Span) error {
	var got []string
	for {
		content, found := span.Attributes.GetString(fmt.Sprintf("%s.%d.content", agl.AttrGenAIPrompt, len(got)))
		if !found {
			break
		}
		got = append(got, content)
	}
	if len(got) == 0 {
		return fmt.Errorf("%s: the record of call %d has no messages", span.RolloutID, span.SequenceID)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if want := a.sent[got[len(got)-1]]; !slices.Equal(got, want) {
		return fmt.Errorf("%s: the record of call %d has the messages %.300q, want %.300q", span.RolloutID, span.SequenceID, got, want)
	}
	return nil
}

// call makes one call and reports whether the proxy has accepted it.
func (a *agent) call(ctx context.Context, r agl.AttemptedRollout, kind string) (began bool, err error) {
	stream := ""
	if kind == "stream" || kind == "broken-stream" || kind == "malformed" || kind == "leave" {
		stream = `"stream":true,`
	}
	messages := slices.Clone(a.messages(r.Attempt.AttemptID, kind))
	for i, content := range messages {
		messages[i] = fmt.Sprintf(`{"role":"user","content":%q}`, content)
	}
	body := fmt.Sprintf(`{"model":"m",%s"messages":[%s]}`, stream, strings.Join(messages, ","))
	ctx, leave := context.WithCancel(ctx)
	defer leave()
	address := a.proxy + "/rollout/" + r.RolloutID + "/attempt/" + r.Attempt.AttemptID + "/v1/chat/completions"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, address, strings.NewReader(body))
	if err != nil {
		return false, err
	}
	res, err := a.client.Do(req)
	if err != nil {
		return false, err
	}
	defer res.Body.Close()
	if kind == "leave" && res.StatusCode == http.StatusOK {
		_, err := res.Body.Read(make([]byte, 1))
		return true, err
	}
	// A reply that breaks off does so for the agent, too.
	reply, err := io.ReadAll(res.Body)
	refused := res.StatusCode == http.StatusServiceUnavailable && (strings.Contains(string(reply), "shutting_down") || strings.Contains(string(reply), "capture_full"))
	if kind == "broken-stream" {
		err = nil
	}
	return !refused, err
}

// store is a client of a store that may be away for a while.
func store(t *testing.T, url string, retry time.Duration) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: url, RetryTimeout: retry, MaxBackoff: 200 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

const longOutage = 10 * time.Minute

// check fails unless there is exactly one record for each of n calls of an attempt: three spans of one trace with
// one sequence id, the messages that were sent, and unique ids and response ids.
func (a *agent) check(ctx context.Context, s agl.Store, r agl.AttemptedRollout, n int) error {
	page, err := s.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID})
	if err != nil {
		return err
	}
	traces, sequence, ids := make(map[string]int), make(map[int64]string), make(map[string]bool)
	for _, span := range page.Items {
		traces[span.TraceID]++
		if span.Name == agl.SpanLiteLLMRequest {
			if err := a.sentAs(&span); err != nil {
				return err
			}
		}
		if other := sequence[span.SequenceID]; other != "" && other != span.TraceID {
			return fmt.Errorf("%s: two calls under sequence id %d", r.RolloutID, span.SequenceID)
		}
		sequence[span.SequenceID] = span.TraceID
		if id, ok := span.Attributes.GetString(agl.AttrGenAIResponseID); ok {
			if ids[id] {
				return fmt.Errorf("%s: two calls with response id %s", r.RolloutID, id)
			}
			ids[id] = true
		}
	}
	if len(traces) != n || len(sequence) != n || len(page.Items) != 3*n {
		return fmt.Errorf("%s: %d traces with %d spans under %d sequence ids for %d calls", r.RolloutID, len(traces), len(page.Items), len(sequence), n)
	}
	return nil
}

// gateway is a proxy in this process that is now and then replaced by another one, as in an
// orderly restart.
type gateway struct {
	cfg     proxy.Config
	current atomic.Pointer[proxy.Proxy]
}

func (g *gateway) ServeHTTP(w http.ResponseWriter, r *http.Request) { g.current.Load().ServeHTTP(w, r) }

func (g *gateway) replace(ctx context.Context) error {
	var errs []error
	if p := g.current.Load(); p != nil {
		errs = append(errs, p.Close(ctx))
	}
	p, err := proxy.New(g.cfg)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	p.Start(context.WithoutCancel(ctx))
	g.current.Store(p)
	return errors.Join(errs...)
}

// TestOneRecordPerCall kills the store and restarts the proxy while agents call.
func TestOneRecordPerCall(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d", seed)
	dir := process.Dir(t)
	server := process.Store(t, aglBinary, "store", dir, "--db", "sqlite:"+filepath.Join(dir, "agl.db"))
	model := proxytest.NewServer(backend)
	defer model.Close()
	g := &gateway{cfg: proxy.Config{
		Models: []proxy.Model{{Name: "m", BaseURL: model.BaseURL()}}, Spans: store(t, server.URL(), -1), SpoolDir: filepath.Join(dir, "spool"),
		Retry: proxy.Retry{Attempts: 1}, Health: proxy.Health{Failures: 1 << 30}, Logger: slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelError})),
	}}
	if err := g.replace(t.Context()); err != nil {
		t.Fatal(err)
	}
	front := httptest.NewServer(g)
	defer front.Close()
	patient := store(t, server.URL(), longOutage)

	const agents = 24
	a := &agent{client: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: agents}}, proxy: front.URL}
	defer a.client.CloseIdleConnections()
	var made, recorded atomic.Int64
	progress := make(chan struct{}, 1)
	var done sync.Map // rollout id → its attempt and calls
	var group sync.WaitGroup
	for i := range agents {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		group.Go(func() {
			for made.Load() < int64(*callsFlag) && !t.Failed() {
				r, err := patient.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: []byte("1")}})
				if err != nil {
					t.Error(err)
					return
				}
				n := 0
				for range 1 + random.IntN(12) {
					began, err := a.call(t.Context(), r, kinds[random.IntN(len(kinds))])
					if err != nil {
						t.Errorf("call: %v", err)
						return
					}
					if began {
						n++
					}
					made.Add(1)
					select {
					case progress <- struct{}{}:
					default:
					}
				}
				if err := flush(t.Context(), a, r); err != nil {
					t.Errorf("flush: %v", err)
					return
				}
				if err := a.check(t.Context(), patient, r, n); err != nil {
					t.Error(err)
					return
				}
				done.Store(r.RolloutID, finished{r, n})
				recorded.Add(int64(n))
			}
		})
	}
	harass(t, server, g, &made, progress)
	group.Wait()
	if err := g.current.Load().Close(t.Context()); err != nil {
		t.Error(err)
	}
	// What was said to be stored is stored for good.
	server.Kill()
	server.Start()
	rollouts := 0
	done.Range(func(_, value any) bool {
		f := value.(finished)
		rollouts++
		if err := a.check(t.Context(), patient, f.rollout, f.calls); err != nil {
			t.Error(err)
		}
		return true
	})
	t.Logf("%d calls of %d attempts, %d recorded, the store killed %d times, the proxy restarted %d times", made.Load(), rollouts, recorded.Load(), *killsFlag+1, *killsFlag)
}

type finished struct {
	rollout agl.AttemptedRollout
	calls   int
}

// flush passes the barrier of an attempt, again if the proxy is being replaced.
func flush(ctx context.Context, a *agent, r agl.AttemptedRollout) error {
	for {
		err := (&proxy.Client{BaseURL: a.proxy, HTTP: a.client}).FlushAttempt(ctx, r.RolloutID, r.Attempt.AttemptID)
		if !errors.Is(err, agl.ErrUnavailable) {
			return err
		}
	}
}

// harass kills the store at even intervals of the calls, leaves it away for a while, and
// replaces the proxy, every second time while the store is away.
func harass(t *testing.T, server *process.Server, g *gateway, made *atomic.Int64, progress <-chan struct{}) {
	t.Helper()
	until := func(calls int64, limit time.Duration) {
		over := time.NewTimer(limit)
		defer over.Stop()
		for made.Load() < calls && !t.Failed() {
			select {
			case <-progress:
			case <-over.C:
				return
			}
		}
	}
	for i := range *killsFlag {
		until(int64((i+1)**callsFlag/(*killsFlag+1)), time.Hour)
		server.Kill()
		// Agents that wait for their flushes make no calls.
		until(made.Load()+200, 2*time.Second)
		replace := func() {
			if err := g.replace(t.Context()); err != nil {
				t.Errorf("replace the proxy: %v", err)
			}
		}
		if i%2 == 0 {
			replace()
			until(made.Load()+200, time.Second)
		}
		server.Start()
		if i%2 == 1 {
			replace()
		}
	}
}
