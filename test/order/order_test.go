package order

import (
	"bytes"
	"context"
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

// call asks the model one question as any client would, without the tracer's knowledge.
func (w *world) call(a agl.AttemptedRollout, question string, stream bool) error {
	body := fmt.Sprintf(`{"model":"m","messages":[{"role":"user","content":%q}],"stream":%v}`, question, stream)
	url := w.url + "/rollout/" + a.RolloutID + "/attempt/" + a.Attempt.AttemptID + "/v1/chat/completions"
	resp, err := w.http.Post(url, "application/json", bytes.NewReader([]byte(body)))
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
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
					if err := w.call(a, fmt.Sprint("question ", i), false); err != nil {
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

// TestOrder runs agents that do anything in any order: 1,000 programs in process, and 1,000 over HTTP.
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

// checkOrder draws a program of model calls (one, one that the model refuses at first, or several at once), rewards,
// messages and operations, runs it, and checks that each reward stands behind the calls
// that ended before it and before those that started after it.
func checkOrder(ctx context.Context, rt *rapid.T, w *world) {
	steps := rapid.SliceOfN(rapid.SampledFrom([]string{"call", "stream", "retried", "calls", "reward", "message", "operation"}), 1, 12).Draw(rt, "steps")
	width := rapid.IntRange(2, 3).Draw(rt, "calls at once")
	place := map[string]int{}   // of each question, which its answer repeats: its step
	reward := map[float64]int{} // of each reward: its step
	spans, err := w.run(ctx, func(ctx context.Context, a agl.AttemptedRollout) error {
		for i, step := range steps {
			question := func(n int) string {
				q := fmt.Sprintf("question %d of step %d.", n, i)
				place[q] = i
				return q
			}
			var err error
			switch step {
			case "call", "stream":
				err = w.call(a, question(0), step == "stream")
			case "retried":
				err = w.call(a, "retried "+question(0), false)
			case "calls":
				var all sync.WaitGroup
				errs := make([]error, width)
				for n := range width {
					q := question(n)
					all.Go(func() { errs[n] = w.call(a, q, n%2 == 0) })
				}
				all.Wait()
				for _, one := range errs {
					if one != nil {
						err = one
					}
				}
			case "reward":
				reward[float64(i)] = i
				_, err = tracer.EmitReward(ctx, float64(i))
			case "message":
				_, err = tracer.EmitMessage(ctx, "a message")
			case "operation":
				_, err = tracer.Do(ctx, "step", nil, func(context.Context) (int, error) { return i, nil })
			}
			if err != nil {
				return fmt.Errorf("step %d, %s: %w", i, step, err)
			}
		}
		return nil
	})
	if err != nil {
		rt.Fatal(err)
	}
	type event struct {
		sequence int64
		step     int
		reward   bool
	}
	var events []event
	for i := range spans {
		s := &spans[i]
		if s.Name == agl.SpanRawRequest {
			text, _ := s.Attributes.GetString("llm.hosted_vllm.choices")
			for said, step := range place {
				if strings.Contains(text, said) {
					events = append(events, event{s.SequenceID, step, false})
				}
			}
		}
		value, err := adapter.PrimaryReward(s)
		if err != nil {
			rt.Fatal(err)
		}
		if value.Valid {
			events = append(events, event{s.SequenceID, reward[value.V], true})
		}
	}
	if len(events) != len(place)+len(reward) {
		rt.Fatalf("%d calls and rewards are recorded, want %d calls and %d rewards", len(events), len(place), len(reward))
	}
	for _, one := range events {
		for _, other := range events {
			if (one.reward || other.reward) && one.step < other.step && one.sequence >= other.sequence {
				rt.Errorf("step %d (%s) has the sequence id %d, step %d (%s) has %d",
					one.step, steps[one.step], one.sequence, other.step, steps[other.step], other.sequence)
			}
		}
	}
}
