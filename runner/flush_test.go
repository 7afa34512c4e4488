package runner_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/runner"
)

// fakeProxy answers flushes with the statuses given, the last one for ever.
type fakeProxy struct {
	statuses []int
	reply    string
	err      error

	mu    sync.Mutex
	calls []string
}

func (p *fakeProxy) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.calls = append(p.calls, fmt.Sprintf("%s %s %s %s", req.Method, req.URL, body, req.Header.Get("Authorization")))
	if p.err != nil {
		return nil, p.err
	}
	status := p.statuses[min(len(p.calls), len(p.statuses))-1]
	header := http.Header{}
	if status == http.StatusMovedPermanently {
		header.Set("Location", "https://"+req.URL.Host+req.URL.Path)
	}
	return &http.Response{Status: fmt.Sprint(status), StatusCode: status, Header: header, Body: io.NopCloser(strings.NewReader(cmp.Or(p.reply, "why")))}, nil
}

func proxied(endpoint string) agl.Resources {
	return agl.Resources{{Name: "llm", Resource: agl.ProxyLLM{LLM: agl.LLM{Endpoint: endpoint, Model: "m"}}}}
}

func TestFlushOverHTTP(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		proxy *fakeProxy
		calls int // for two rollouts
		kind  agl.OutcomeKind
	}{
		{"ours", &fakeProxy{statuses: []int{200}}, 2, agl.OutcomeOK},
		{"another's", &fakeProxy{statuses: []int{404}}, 2, agl.OutcomeOK},
		{"another's that knows no POST", &fakeProxy{statuses: []int{405}}, 2, agl.OutcomeOK},
		{"busy at first", &fakeProxy{statuses: []int{503, 429, 200}}, 4, agl.OutcomeOK},
		{"behind a load balancer that has none for a moment", &fakeProxy{statuses: []int{200, 404, 404, 200}}, 4, agl.OutcomeOK},
		{"wants a token", &fakeProxy{statuses: []int{401}}, 2, agl.OutcomeSetupError},
		{"has lost calls", &fakeProxy{statuses: []int{500}, reply: `{"error":{"code":"records_lost","message":"2 call records could not be stored"}}`}, 2, agl.OutcomeSetupError},
		{"refuses", &fakeProxy{statuses: []int{400}}, 2, agl.OutcomeSetupError},
		{"redirects to https", &fakeProxy{statuses: []int{301}}, 2, agl.OutcomeSetupError},
		{"away", &fakeProxy{err: errors.New("refused")}, -1, agl.OutcomeSetupError},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := openStore(t)
				ids := []string{enqueue(t, s, agl.RolloutConfig{}), enqueue(t, s, agl.RolloutConfig{})}
				update, err := s.AddResources(t.Context(), agl.AddResourcesParams{Resources: proxied("http://proxy:1/v1/")})
				if err != nil {
					t.Fatal(err)
				}
				for _, id := range ids {
					if _, err := s.UpdateRollout(t.Context(), agl.UpdateRolloutParams{RolloutID: id, ResourcesID: new(agl.Some(update.ResourcesID))}); err != nil {
						t.Fatal(err)
					}
				}
				r := newRunner(t, runner.Config{Store: s, Agent: agl.AgentFunc(done), MaxRollouts: 2, HeartbeatInterval: -1,
					HTTPClient: &http.Client{Transport: tc.proxy}, ProxyToken: "secret"})
				if err := r.Run(t.Context()); err != nil {
					t.Fatal(err)
				}
				for _, id := range ids {
					status, attempt := agl.RolloutSucceeded, agl.AttemptSucceeded
					if tc.kind != agl.OutcomeOK {
						status, attempt = agl.RolloutFailed, agl.AttemptFailed
					}
					outcome := checkEnd(t, s, id, status, attempt, tc.kind)
					if tc.kind != agl.OutcomeOK && !strings.Contains(outcome.Message, "flush the proxy http://proxy:1:") {
						t.Errorf("message is %q", outcome.Message)
					}
					if tc.proxy.err != nil && !strings.Contains(outcome.Message, "start it, or change their endpoint") {
						t.Errorf("message is %q, want it to say what helps", outcome.Message)
					}
				}
				if tc.calls >= 0 && len(tc.proxy.calls) != tc.calls {
					t.Errorf("the proxy was called %d times, want %d", len(tc.proxy.calls), tc.calls)
				}
				attempts, err := s.QueryAttempts(t.Context(), agl.QueryAttemptsParams{RolloutID: ids[0]})
				if err != nil {
					t.Fatal(err)
				}
				want := fmt.Sprintf(`POST http://proxy:1/admin/attempts/flush {"rollout_id":%q,"attempt_id":%q} Bearer secret`, ids[0], attempts.Items[0].AttemptID)
				if tc.proxy.calls[0] != want {
					t.Errorf("request\n got %s\nwant %s", tc.proxy.calls[0], want)
				}
			})
		})
	}
}

// A runner whose proxy has ended with its run, which was started again and has cancelled the rollout, takes the next one as soon as it learns of that.
func TestFlushEndsWithTheAttempt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := openStore(t)
		addResources(t, s, proxied("http://proxy:1/v1"))
		rollouts, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 1)})
		if err != nil {
			t.Fatal(err)
		}
		r := newRunner(t, runner.Config{Store: s, Agent: agl.AgentFunc(done), MaxRollouts: 1, HeartbeatInterval: 10 * time.Second,
			HTTPClient: &http.Client{Transport: &fakeProxy{err: errors.New("refused")}}})
		began := time.Now()
		time.AfterFunc(time.Second, func() {
			if _, err := s.CancelRollout(t.Context(), agl.CancelRolloutParams{RolloutID: rollouts[0].RolloutID}); err != nil {
				t.Error(err)
			}
		})
		if err := r.Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > 11*time.Second {
			t.Errorf("the runner asked the proxy for %v after the rollout was cancelled, want until its next heartbeat", took-time.Second)
		}
	})
}

type flushFunc func(ctx context.Context, rolloutID, attemptID string) error

func (f flushFunc) FlushAttempt(ctx context.Context, rolloutID, attemptID string) error {
	return f(ctx, rolloutID, attemptID)
}

// The flush stands between the agent and the report, and hooks see what it
// brought.
func TestFlushComesBeforeTheReport(t *testing.T) {
	t.Parallel()
	s := openStore(t)
	addResources(t, s, proxied("http://proxy/v1"))
	var order []string
	s.updateAttempt = func(p agl.UpdateAttemptParams) error {
		if *p.Status == agl.AttemptRunning {
			return nil // while all this happens
		}
		order = append(order, "report "+string(*p.Status))
		return nil
	}
	rollouts, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 1)})
	if err != nil {
		t.Fatal(err)
	}
	id := rollouts[0].RolloutID
	runOne(t, runner.Config{
		Store: s,
		Flusher: flushFunc(func(ctx context.Context, rolloutID, attemptID string) error {
			order = append(order, "flush "+rolloutID)
			if len(order) > 2 {
				return nil
			}
			_, err := s.AddSpans(ctx, agl.AddSpansParams{IssueSequenceIDs: true, Spans: []agl.Span{
				{RolloutID: id, AttemptID: attemptID, SpanID: "p", Name: agl.SpanLiteLLMRequest},
			}})
			return err
		}),
		Hooks: []agl.Hook{endHook(func(spans []agl.Span) { order = append(order, fmt.Sprint("hook ", spanNames(spans))) })},
		Agent: agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
			order = append(order, "agent")
			return agl.Result{}, nil
		}),
	})
	want := []string{"agent", "flush " + id, "hook [litellm_request]", "flush " + id, "report succeeded"}
	if !slices.Equal(order, want) {
		t.Errorf("order is %v, want %v", order, want)
	}
}

// endHook sees the spans of finished attempts.
func endHook(see func(spans []agl.Span)) agl.Hook { return &spanHook{see: see} }

type spanHook struct {
	agl.UnimplementedHook

	see func(spans []agl.Span)
}

func (h *spanHook) OnRolloutEnd(_ context.Context, _ agl.Task, end agl.AttemptEnd) error {
	h.see(end.Spans)
	return nil
}
