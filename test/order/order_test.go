package order

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/tracer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a store, a proxy before a model, and a tracer.
type world struct {
	store  agl.Store
	proxy  *proxy.Proxy
	url    string // of the proxy
	http   *http.Client
	tracer *tracer.Tracer
}

func newWorld(t *testing.T, overHTTP bool) *world {
	t.Helper()
	w := &world{store: memorytest.Open(t), http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}}
	t.Cleanup(w.http.CloseIdleConnections)
	if overHTTP {
		handler, err := server.New(server.Config{Store: w.store})
		if err != nil {
			t.Fatal(err)
		}
		front := httptest.NewServer(handler)
		t.Cleanup(front.Close)
		remote, err := client.New(client.Config{URL: front.URL})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := remote.Close(); err != nil {
				t.Error(err)
			}
		})
		w.store = remote
	}
	model := proxytest.NewServer(proxytest.Busy("retried", proxytest.VLLM(func(prompt string, _ int) string { return "reply to " + prompt })))
	t.Cleanup(model.Close)
	var err error
	w.proxy, err = proxy.New(proxy.Config{
		Models: []proxy.Model{{Name: "m", BaseURL: model.BaseURL()}}, Spans: w.store, Retry: proxy.Retry{Delay: time.Millisecond},
	})
	if err != nil {
		t.Fatal(err)
	}
	w.proxy.Start(t.Context())
	t.Cleanup(func() {
		if err := w.proxy.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	front := httptest.NewServer(w.proxy)
	t.Cleanup(front.Close)
	w.url = front.URL
	w.tracer, err = tracer.New(tracer.Config{Store: w.store})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// call asks the model one question as any client would, without the tracer. begun, unless it is nil, is called when the first
// bytes of the reply have arrived.
func (w *world) call(a agl.AttemptedRollout, question string, stream bool, begun func() error) error {
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"stream":%v}`, question, stream)
	return w.post(a, "/v1/chat/completions", body, begun)
}

// emit emits a reward as an agent in any language does.
func (w *world) emit(a agl.AttemptedRollout, reward float64) error {
	return w.post(a, "/emit", fmt.Sprintf(`{"reward":%v}`, reward), nil)
}

func (w *world) post(a agl.AttemptedRollout, path, body string, begun func() error) error {
	url := w.url + "/rollout/" + a.RolloutID + "/attempt/" + a.Attempt.AttemptID + path
	resp, err := w.http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	var first [1]byte
	if _, err := io.ReadFull(resp.Body, first[:]); err != nil {
		return err
	}
	if begun != nil {
		if err := begun(); err != nil {
			return err
		}
	}
	reply, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("HTTP %d: %s", resp.StatusCode, reply)
	}
	return nil
}

// run runs an agent in a new attempt and returns the attempt's spans.
func (w *world) run(ctx context.Context, agent func(ctx context.Context, a agl.AttemptedRollout) error) ([]agl.Span, error) {
	a, err := w.store.StartRollout(ctx, agl.StartRolloutParams{})
	if err != nil {
		return nil, err
	}
	traced, trace, err := w.tracer.Start(ctx, agl.TraceParams{RolloutID: a.RolloutID, AttemptID: a.Attempt.AttemptID})
	if err != nil {
		return nil, err
	}
	if err := agent(traced, a); err != nil {
		return nil, err
	}
	if _, err := trace.End(ctx); err != nil {
		return nil, err
	}
	if err := w.proxy.FlushAttempt(ctx, a.RolloutID, a.Attempt.AttemptID); err != nil {
		return nil, err
	}
	page, err := w.store.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: a.RolloutID})
	return page.Items, err
}

// TestRewardsBetweenCalls is an agent that rewards each of its calls at once.
func TestRewardsBetweenCalls(t *testing.T) {
	t.Parallel()
	for _, overHTTP := range []bool{false, true} {
		t.Run(map[bool]string{false: "in process", true: "over HTTP"}[overHTTP], func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, overHTTP)
			spans, err := w.run(t.Context(), func(ctx context.Context, a agl.AttemptedRollout) error {
				for i, reward := range []float64{0.1, 0.2, 0.3} {
					if err := w.call(a, fmt.Sprint("question ", i), false, nil); err != nil {
						return err
					}
					if _, err := tracer.EmitReward(ctx, reward); err != nil {
						return err
					}
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			triplets, err := adapter.ProxyTriplets{}.Adapt(spans)
			if err != nil {
				t.Fatal(err)
			}
			var got []float64
			for _, one := range triplets {
				got = append(got, one.Reward.V)
			}
			if fmt.Sprint(got) != "[0.1 0.2 0.3]" {
				t.Errorf("rewards of the calls in their order: got %v, want [0.1 0.2 0.3]", got)
			}
		})
	}
}

// TestOrder runs agents with random programs: 1,000 in process, and 1,000 over HTTP.
func TestOrder(t *testing.T) {
	t.Parallel()
	shards := 20 // of 100 programs each
	if testing.Short() {
		shards = 2
	}
	for shard := range shards {
		t.Run(fmt.Sprint(shard), func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, shard%2 == 1)
			rapid.Check(t, func(rt *rapid.T) { checkOrder(t.Context(), rt, w) })
		})
	}
}

// happened is a call or a reward as its agent saw it: it began after one moment and before another, and ended before a third.
// Moments are numbered.
type happened struct {
	what             string
	after, by, ended int64
	reward, byProxy  bool
	sequenceID       int64
}

// before reports whether one must precede the other. The proxy knows which calls are running when it receives a reward. A
// tracer does not, so its rewards must only follow calls that have ended.
func (one *happened) before(other *happened) bool {
	by := one.ended
	if other.byProxy {
		by = one.by
	}
	return (one.reward || other.reward) && by < other.after
}

// history has the calls and rewards of an attempt.
type history struct {
	mu      sync.Mutex
	now     int64
	calls   map[string]*happened  // by their questions, which the answers repeat
	rewards map[float64]*happened // by their values
}

func (h *history) tick() int64 {
	h.now++
	return h.now
}

func (h *history) begin(what string, reward bool) (*happened, float64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	one := &happened{what: what, after: h.tick(), reward: reward}
	if reward {
		h.rewards[float64(one.after)] = one
	} else {
		h.calls[fmt.Sprintf("question %d.", one.after)] = one
	}
	return one, float64(one.after)
}

func (h *history) mark(moment *int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	*moment = h.tick()
}

// agent is one of the agents of an attempt.
type agent struct {
	*world
	*history
	a agl.AttemptedRollout
}

func (g agent) ask(prefix string, stream bool, during func() error) error {
	one, n := g.begin(prefix+" call", false)
	defer g.mark(&one.ended)
	return g.call(g.a, fmt.Sprintf("%s question %v.", prefix, n), stream, func() error {
		g.mark(&one.by)
		if during == nil {
			return nil
		}
		return during()
	})
}

func (g agent) reward(ctx context.Context, byProxy bool) (err error) {
	one, n := g.begin("reward", true)
	one.byProxy = byProxy
	defer g.mark(&one.ended)
	defer g.mark(&one.by)
	if byProxy {
		return g.emit(g.a, n)
	}
	_, err = tracer.EmitReward(ctx, n)
	return err
}

func (g agent) step(ctx context.Context, step string, width int) error {
	switch step {
	case "call", "stream":
		return g.ask("", step == "stream", nil)
	case "retried":
		return g.ask("retried", false, nil)
	case "calls":
		return together(width, func(n int) error { return g.ask("", n%2 == 0, nil) })
	case "branches":
		return together(width, func(n int) error {
			for _, step := range []string{"call", "reward", "stream", "emit"} {
				if err := g.step(ctx, step, n); err != nil {
					return err
				}
			}
			return nil
		})
	case "emit in a stream":
		return g.ask("", true, func() error { return g.reward(ctx, true) })
	case "reward", "emit":
		return g.reward(ctx, step == "emit")
	case "message":
		_, err := tracer.EmitMessage(ctx, "a message")
		return err
	default:
		_, err := tracer.Do(ctx, step, nil, func(context.Context) (int, error) { return 1, nil })
		return err
	}
}

// together runs functions at once and returns one of their errors.
func together(n int, run func(n int) error) error {
	errs := make([]error, n)
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { errs[i] = run(i) })
	}
	all.Wait()
	return errors.Join(errs...)
}

// checkOrder draws a program of model calls (one, one that the model refuses at first, or several at once), rewards from the
// process and through the proxy, also in the middle of a stream, messages, operations, and branches that do so beside each
// other. It runs the program, and checks that each reward stands behind the calls and rewards that had begun before it, and
// before those that began after it.
func checkOrder(ctx context.Context, rt *rapid.T, w *world) {
	steps := rapid.SliceOfN(rapid.SampledFrom([]string{
		"call", "stream", "retried", "calls", "reward", "emit", "emit in a stream", "message", "operation", "branches",
	}), 1, 12).Draw(rt, "steps")
	width := rapid.IntRange(2, 3).Draw(rt, "at once")
	h := &history{calls: map[string]*happened{}, rewards: map[float64]*happened{}}
	spans, err := w.run(ctx, func(ctx context.Context, a agl.AttemptedRollout) error {
		for i, step := range steps {
			if err := (agent{w, h, a}).step(ctx, step, width); err != nil {
				return fmt.Errorf("step %d, %s: %w", i, step, err)
			}
		}
		return nil
	})
	if err != nil {
		rt.Fatal(err)
	}
	var all []*happened
	for i := range spans {
		s := &spans[i]
		if s.Name == agl.SpanRawRequest {
			text, _ := s.Attributes.GetString("llm.hosted_vllm.choices")
			for said, one := range h.calls {
				if strings.Contains(text, said) {
					one.sequenceID = s.SequenceID
					all = append(all, one)
				}
			}
		}
		value, err := adapter.PrimaryReward(s)
		if err != nil {
			rt.Fatal(err)
		}
		if value.Valid {
			h.rewards[value.V].sequenceID = s.SequenceID
			all = append(all, h.rewards[value.V])
		}
	}
	if len(all) != len(h.calls)+len(h.rewards) {
		rt.Fatalf("%d calls and rewards are recorded, want %d calls and %d rewards", len(all), len(h.calls), len(h.rewards))
	}
	for _, one := range all {
		for _, other := range all {
			if one.before(other) && one.sequenceID >= other.sequenceID {
				rt.Errorf("%s has the sequence id %d, a later %s has %d: %+v, %+v", one.what, one.sequenceID, other.what, other.sequenceID, *one, *other)
			}
		}
	}
}
