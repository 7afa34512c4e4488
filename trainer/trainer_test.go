package trainer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/proxytest"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/tracer"
	"github.com/agl-go/agl/trainer"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func prompt() agl.Resources {
	return agl.Resources{{Name: "prompt", Resource: agl.PromptTemplate{Template: "say hi", Engine: agl.PromptFString}}}
}

// get returns the body of an answer with the status 200.
func get(ctx context.Context, url, token string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return "", err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(body), err
}

// rewarded is an agent that does every task.
var rewarded = agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) { return agl.RewardResult(1), nil })

// onePass is an algorithm that runs the train dataset once.
func onePass(ctx context.Context, in agl.AlgorithmInput) error {
	var wanted []agl.EnqueueRollout
	for i := range in.Train.Len() {
		task, err := in.Train.Task(i)
		if err != nil {
			return err
		}
		wanted = append(wanted, agl.EnqueueRollout{Input: task, Mode: agl.ModeTrain})
	}
	rollouts, err := in.Store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: wanted})
	if err != nil {
		return err
	}
	var ids []string
	for _, r := range rollouts {
		ids = append(ids, r.RolloutID)
	}
	done, err := in.Store.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: ids})
	if err != nil {
		return err
	}
	for _, r := range done {
		if r.Status != agl.RolloutSucceeded {
			attempt, err := in.Store.GetLatestAttempt(ctx, agl.GetLatestAttemptParams{RolloutID: r.RolloutID})
			if err != nil {
				return err
			}
			outcome, _ := attempt.Outcome()
			return fmt.Errorf("rollout %s is %s: %s", r.RolloutID, r.Status, outcome.Message)
		}
	}
	return nil
}

func tasks(n int) agl.Tasks {
	var list agl.Tasks
	for i := range n {
		list = append(list, jsontext.Value(fmt.Sprintf(`{"n":%d}`, i)))
	}
	return list
}

func newStore(t *testing.T) *store.Store {
	t.Helper()
	driver, err := memory.New(memory.Config{})
	if err != nil {
		t.Fatal(err)
	}
	s, err := store.New(t.Context(), store.Config{Driver: driver})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestFit(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	var hooked atomic.Int64
	tr, err := trainer.New(trainer.Config{
		Agent: rewarded, Algorithm: agl.AlgorithmFunc(onePass), Train: tasks(20), InitialResources: prompt(),
		Runners: 3, Store: s, Hooks: []agl.Hook{countingHook{count: &hooked}},
	})
	if err != nil {
		t.Fatal(err)
	}
	// A trainer may be used again: the queue that the first run closed is opened.
	for run := range 2 {
		if err := tr.Fit(t.Context()); err != nil {
			t.Fatalf("run %d: %v", run, err)
		}
	}
	page, err := s.QueryRollouts(t.Context(), agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded}})
	if err != nil {
		t.Fatal(err)
	}
	if page.Total != 40 || hooked.Load() != 40 {
		t.Errorf("%d rollouts succeeded and the hook saw %d, want 40 of each", page.Total, hooked.Load())
	}
}

type countingHook struct {
	agl.UnimplementedHook
	count *atomic.Int64
}

func (h countingHook) OnRolloutEnd(context.Context, agl.Task, agl.AttemptEnd) error {
	h.count.Add(1)
	return nil
}

// One run at a time: an algorithm belongs to one run, and so do the failures of the trainer.
func TestFitDuringFit(t *testing.T) {
	t.Parallel()
	var during error
	algorithm := agl.AlgorithmFunc(func(ctx context.Context, in agl.AlgorithmInput) error {
		during = trainer.FromContext(ctx).Fit(ctx)
		return onePass(ctx, in)
	})
	tr, err := trainer.New(trainer.Config{Agent: rewarded, Algorithm: algorithm, Train: tasks(2), InitialResources: prompt()})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := tr.Fit(t.Context()); err != nil {
			t.Error(err)
		}
		if !errors.Is(during, agl.ErrIllegalState) || !strings.Contains(during.Error(), "trainer: a run is in progress") {
			t.Errorf("a Fit during another one: %v", during)
		}
	}
}

func TestFitOverHTTP(t *testing.T) {
	t.Parallel()
	// One process plays both sides, each through its role, as two machines would.
	s := newStore(t)
	url := make(chan string, 1)
	base := trainer.Config{Agent: rewarded, Algorithm: agl.AlgorithmFunc(onePass), Train: tasks(20), InitialResources: prompt(), Runners: 2, Store: s}
	algorithmSide, runnerSide := base, base
	algorithmSide.Strategy = execution.ClientServer{
		Config:    execution.Config{Role: execution.RoleAlgorithm, Host: "127.0.0.1", AnyPort: true, Token: "secret"},
		Listening: func(u string) { url <- u },
	}
	ended := make(chan error, 1)
	go func() { ended <- fit(t.Context(), algorithmSide) }()
	runnerSide.Strategy = execution.ClientServer{
		Config: execution.Config{Role: execution.RoleRunner, StoreURL: <-url, Token: "secret"},
	}
	runnerSide.Store = nil
	if err := fit(t.Context(), runnerSide); err != nil {
		t.Errorf("runner: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("algorithm: %v", err)
	}
}

func TestManagedStoreServesMetrics(t *testing.T) {
	t.Parallel()
	url := make(chan string, 1)
	cfg := trainer.Config{InitialResources: prompt(), Database: "memory:"}
	cfg.Strategy = execution.ClientServer{
		Config:    execution.Config{Role: execution.RoleAlgorithm, Host: "127.0.0.1", AnyPort: true},
		Listening: func(u string) { url <- u },
	}
	cfg.Algorithm = agl.AlgorithmFunc(func(ctx context.Context, in agl.AlgorithmInput) error {
		if _, err := in.Store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{}}}); err != nil {
			return err
		}
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, <-url+"/metrics", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if !strings.Contains(string(text), "agl_store_total{") {
			t.Errorf("the metrics do not count the store:\n%s", text)
		}
		return err
	})
	if err := fit(t.Context(), cfg); err != nil {
		t.Error(err)
	}
	http.DefaultClient.CloseIdleConnections()
}

func fit(ctx context.Context, cfg trainer.Config) error {
	tr, err := trainer.New(cfg)
	if err != nil {
		return err
	}
	return tr.Fit(ctx)
}

func TestFitWithoutAlgorithmServesUntilInterrupted(t *testing.T) {
	t.Parallel()
	s := newStore(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	served := make(chan struct{}, 1)
	agent := agl.AgentFunc(func(context.Context, agl.Task) (agl.Result, error) {
		served <- struct{}{}
		return agl.RewardResult(1), nil
	})
	ended := make(chan error, 1)
	go func() {
		ended <- fit(ctx, trainer.Config{Agent: agent, InitialResources: prompt(), Store: s})
	}()
	if _, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{}}}); err != nil {
		t.Fatal(err)
	}
	<-served
	stop := errors.New("enough")
	cancel(stop)
	if err := <-ended; !errors.Is(err, stop) {
		t.Errorf("error %v, want the cause of the interrupt", err)
	}
}

func TestConfigErrors(t *testing.T) {
	t.Parallel()
	algorithm := agl.AlgorithmFunc(onePass)
	tests := map[string]struct {
		cfg      trainer.Config
		mentions string
	}{
		"no agent":          {trainer.Config{Algorithm: algorithm}, "Agent"},
		"empty train":       {trainer.Config{Agent: rewarded, Train: agl.Tasks{}}, "Train: the dataset is empty"},
		"empty val":         {trainer.Config{Agent: rewarded, Train: tasks(1), Val: agl.Tasks{}}, "Val: the dataset is empty"},
		"negative runners":  {trainer.Config{Agent: rewarded, Runners: -1}, "Runners: got -1"},
		"too many runners":  {trainer.Config{Agent: rewarded, Runners: 1_000_000_000}, "Runners: got 1000000000, must be at most 100000"},
		"negative rollouts": {trainer.Config{Agent: rewarded, MaxRollouts: -2}, "MaxRollouts: got -2"},
		"no database":       {trainer.Config{Agent: rewarded, Database: "agl.db"}, `Database: got "agl.db"`},
		"resource twice":    {trainer.Config{Agent: rewarded, InitialResources: append(prompt(), prompt()...)}, "given twice"},
		"resource of proxy": {
			trainer.Config{Agent: rewarded, InitialResources: agl.Resources{{Name: "llm", Resource: agl.LLM{}}}, Proxy: trainer.NewProxy(trainer.ProxyConfig{})},
			`InitialResources[0]: got name "llm", which the Proxy has`,
		},
		"resource by pointer": {
			trainer.Config{Agent: rewarded, InitialResources: agl.Resources{{Name: "x", Resource: &agl.LLM{}}}}, "resources.x: got *agl.LLM, must be an agl.LLM",
		},
		"resource with none": {trainer.Config{Agent: rewarded, InitialResources: agl.Resources{{Name: "x"}}}, "InitialResources[0]"},
		"no role": {trainer.Config{
			Agent: rewarded, Algorithm: algorithm, Train: tasks(1), InitialResources: prompt(), Strategy: execution.ClientServer{},
		}, "ConfigFromEnv"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := fit(t.Context(), test.cfg)
			if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), test.mentions) {
				t.Errorf("error %v, want ErrInvalid with %q", err, test.mentions)
			}
		})
	}
}

func TestResourcesAreNeeded(t *testing.T) {
	t.Parallel()
	var ran atomic.Bool
	algorithm := agl.AlgorithmFunc(func(context.Context, agl.AlgorithmInput) error {
		ran.Store(true)
		return nil
	})
	cfg := trainer.Config{Agent: rewarded, Algorithm: algorithm, Database: "memory:"}
	if err := fit(t.Context(), cfg); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "InitialResources") || ran.Load() {
		t.Errorf("error %v, algorithm ran: %t; want ErrInvalid before anything starts", err, ran.Load())
	}
	cfg.OwnResources = true
	if err := fit(t.Context(), cfg); err != nil || !ran.Load() {
		t.Errorf("with OwnResources: error %v, algorithm ran: %t", err, ran.Load())
	}
	// The store of an earlier run has some.
	cfg.OwnResources, cfg.Store = false, newStore(t)
	if _, err := cfg.Store.AddResources(t.Context(), agl.AddResourcesParams{Resources: prompt()}); err != nil {
		t.Fatal(err)
	}
	if err := fit(t.Context(), cfg); err != nil {
		t.Errorf("with resources in the store: %v", err)
	}
}

func TestProxyLivesWithTheRun(t *testing.T) {
	t.Parallel()
	model := proxytest.NewServer(func(context.Context, proxytest.Request) proxytest.Reply {
		return proxytest.Reply{Body: `{"id":"c1","object":"chat.completion","model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}]}`}
	})
	defer model.Close()
	px := trainer.NewProxy(trainer.ProxyConfig{Config: proxy.Config{Models: []proxy.Model{{Name: "m", BaseURL: "http://127.0.0.1:1/v1"}}}})
	if err := px.Flush(t.Context(), nil); !errors.Is(err, agl.ErrUnavailable) {
		t.Errorf("flush before the run: %v, want ErrUnavailable", err)
	}
	// Set before the run, so that it begins with this list.
	if err := px.SetModels([]proxy.Model{{Name: "m", BaseURL: model.BaseURL()}}); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{}}
	defer client.CloseIdleConnections()
	var endpoint atomic.Value
	agent := agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
		llm, err := task.LLM()
		if err != nil {
			return agl.Result{}, err
		}
		endpoint.Store(llm.Endpoint)
		return agl.RewardResult(1), chat(ctx, client, llm)
	})
	s := newStore(t)
	algorithm := agl.AlgorithmFunc(func(ctx context.Context, in agl.AlgorithmInput) error {
		if err := px.Pause(ctx, proxy.PauseHold); err != nil {
			return err
		}
		if err := px.Resume(ctx); err != nil { // without it no call would end
			return err
		}
		if err := px.SetControl("ro-1", &proxy.Control{Budget: proxy.Budget{Calls: -1}}); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("a control that is wrong: %v, want ErrInvalid", err)
		}
		if err := onePass(ctx, in); err != nil {
			return err
		}
		return px.Flush(ctx, nil)
	})
	if err := fit(t.Context(), trainer.Config{Agent: agent, Algorithm: algorithm, Train: tasks(4), Store: s, Proxy: px, Runners: 2}); err != nil {
		t.Fatal(err)
	}
	stats, err := s.Statistics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if calls := len(model.Requests()); calls != 4 || stats.TotalSpans < 2*calls {
		t.Errorf("the model got %d calls and the store %d spans, want 4 calls, each recorded", calls, stats.TotalSpans)
	}
	after, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if url, ok := endpoint.Load().(string); !ok || chat(after, client, agl.LLM{Endpoint: url, Model: "m"}) == nil {
		t.Error("the proxy still answers after the run")
	}
}

func chat(ctx context.Context, client *http.Client, llm agl.LLM) error {
	body := fmt.Sprintf(`{"model":%q,"messages":[{"role":"user","content":"hi"}]}`, llm.Model)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, llm.Endpoint+"/chat/completions", strings.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := client.Do(req)
	if err != nil {
		return err
	}
	reply, err := io.ReadAll(res.Body)
	if err := errors.Join(err, res.Body.Close()); err != nil {
		return err
	}
	if res.StatusCode != http.StatusOK {
		return fmt.Errorf("status %d: %s", res.StatusCode, reply)
	}
	return nil
}

func TestDev(t *testing.T) {
	t.Parallel()
	var log bytes.Buffer
	tr, err := trainer.New(trainer.Config{
		Agent: rewarded, Train: tasks(20), Val: tasks(1), InitialResources: prompt(),
		Algorithm: agl.AlgorithmFunc(func(context.Context, agl.AlgorithmInput) error { return errors.New("not to be run") }),
		Logger:    slog.New(slog.NewTextHandler(&log, nil)),
	})
	if err != nil {
		t.Fatal(err)
	}
	report, err := tr.Dev(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if report.Train.Rollouts != 4 || report.Val.Rollouts != 1 || report.Train.RewardMean != 1 {
		t.Errorf("report %+v, want 4 and 1 rollouts with reward 1", report)
	}
	if !strings.Contains(log.String(), "agentlightning.reward") {
		t.Errorf("the log does not show the spans:\n%s", &log)
	}
}

// wrapped is a strategy of somebody else.
type wrapped struct{ execution.Strategy }

// TestStrategyOfSomebodyElse: what a strategy says of itself counts, not its type.
func TestStrategyOfSomebodyElse(t *testing.T) {
	t.Parallel()
	for role, want := range map[execution.Role]bool{execution.RoleAlgorithm: true, execution.RoleRunner: false} {
		strategy := wrapped{execution.ClientServer{Config: execution.Config{Role: role}}}
		_, err := trainer.New(trainer.Config{Algorithm: agl.AlgorithmFunc(onePass), Train: tasks(1), Strategy: strategy})
		if accepted := err == nil; accepted != want {
			t.Errorf("role %s without an agent: %v", role, err)
		}
	}
}

// countingRunner is a runner from outside: it counts itself, and does what agl's does.
type countingRunner struct {
	*runner.Runner
	runs *atomic.Int64
}

func (r countingRunner) Run(ctx context.Context) error {
	r.runs.Add(1)
	return r.Runner.Run(ctx)
}

// TestInjected: tracers and runners are made by factories, and the algorithm gets what the trainer has.
func TestInjected(t *testing.T) {
	t.Parallel()
	var tracers, runners atomic.Int64
	model := proxytest.NewServer(func(context.Context, proxytest.Request) proxytest.Reply { return proxytest.Reply{} })
	defer model.Close()
	cfg := trainer.Config{
		Agent: rewarded, Train: tasks(3), InitialResources: prompt(), Database: "memory:", Runners: 2, Adapter: adapter.ProxyTriplets{},
		Strategy: execution.ClientServer{Config: execution.Config{Role: execution.RoleBoth, Host: "127.0.0.1", AnyPort: true, Token: "t"}, InProcess: true},
		Proxy:    trainer.NewProxy(trainer.ProxyConfig{Config: proxy.Config{Token: "p", Models: []proxy.Model{{Name: "m", BaseURL: model.BaseURL()}}}}),
		NewTracer: func(s agl.Store) (agl.Tracer, error) {
			tracers.Add(1)
			return tracer.New(tracer.Config{Store: s})
		},
		NewRunner: func(c runner.Config) (trainer.Runner, error) {
			if c.Tracer == nil {
				t.Error("the runner has no tracer")
			}
			r, err := runner.New(c)
			return countingRunner{r, &runners}, err
		},
	}
	cfg.Algorithm = agl.AlgorithmFunc(func(ctx context.Context, in agl.AlgorithmInput) error {
		s, err := client.New(client.Config{URL: in.StoreURL, Token: "t"}) // as a program would
		if err != nil {
			return err
		}
		defer s.Close()
		if _, err := s.GetLatestResources(ctx); err != nil {
			t.Errorf("the store at %q: %v", in.StoreURL, err)
		}
		page, err := get(ctx, in.StoreURL+"/", "")
		if err != nil || !strings.Contains(page, `<div id="app">`) {
			t.Errorf("the page of the store: %.200q, %v", page, err)
		}
		if _, err := in.Runs.StartRun(ctx, agl.StartRunParams{RunID: "ru-1"}); err != nil {
			t.Error(err)
		}
		if run, err := s.GetRun(ctx, "ru-1"); err != nil || run.Status != agl.RunRunning {
			t.Errorf("the run: %+v, %v", run, err)
		}
		if _, ok := in.Adapter.(agl.Adapter[[]adapter.Triplet]); !ok {
			t.Errorf("the adapter is a %T", in.Adapter)
		}
		if _, err := get(ctx, in.Proxy.URL()+"/admin/models", in.Proxy.Token()); err != nil {
			t.Errorf("the proxy: %v", err)
		}
		if err := errors.Join(in.Proxy.Drain(ctx), in.Proxy.Flush(ctx, nil), in.Proxy.Resume(ctx)); err != nil {
			t.Errorf("the proxy: %v", err)
		}
		return onePass(ctx, in)
	})
	if err := fit(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	if tracers.Load() != 2 || runners.Load() != 2 {
		t.Errorf("%d tracers and %d runners were made, want 2 of each", tracers.Load(), runners.Load())
	}
}

// knowingHook fails a test unless it can reach who runs it.
type knowingHook struct {
	agl.UnimplementedHook
	t      *testing.T
	tr     **trainer.Trainer
	called *atomic.Int64
}

func (h knowingHook) OnTraceStart(ctx context.Context, task agl.Task) (context.Context, error) {
	r := runner.FromContext(ctx)
	if trainer.FromContext(ctx) != *h.tr || r == nil || r.Agent() == nil || r.Tracer() == nil {
		h.t.Errorf("the hook gets the trainer %p, want %p, and the runner %p", trainer.FromContext(ctx), *h.tr, r)
		return nil, nil //nolint:nilnil // the context stays as it is
	}
	if _, err := r.Store().GetRollout(ctx, agl.GetRolloutParams{RolloutID: task.Rollout.RolloutID}); err != nil {
		h.t.Error(err)
	}
	h.called.Add(1)
	return nil, nil //nolint:nilnil // the context stays as it is
}

// TestEverybodyKnowsTheTrainer: agents, hooks and algorithms reach the runner and the trainer by their contexts.
func TestEverybodyKnowsTheTrainer(t *testing.T) {
	t.Parallel()
	var tr *trainer.Trainer
	var called atomic.Int64
	agent := agl.AgentFunc(func(ctx context.Context, _ agl.Task) (agl.Result, error) {
		if trainer.FromContext(ctx) != tr || runner.FromContext(ctx) == nil {
			t.Errorf("the agent gets the trainer %p and the runner %p", trainer.FromContext(ctx), runner.FromContext(ctx))
		}
		return agl.RewardResult(1), nil
	})
	tr, err := trainer.New(trainer.Config{
		Agent: agent, Train: tasks(4), InitialResources: prompt(), Store: newStore(t), Hooks: []agl.Hook{knowingHook{t: t, tr: &tr, called: &called}},
		Algorithm: agl.AlgorithmFunc(func(ctx context.Context, in agl.AlgorithmInput) error {
			if got := trainer.FromContext(ctx); got != tr || got.Config().Agent == nil {
				t.Errorf("the algorithm gets the trainer %p, want %p", got, tr)
			}
			return onePass(ctx, in)
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Fit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if called.Load() != 4 || trainer.FromContext(t.Context()) != nil || runner.FromContext(t.Context()) != nil {
		t.Errorf("the hook was called %d times, want 4", called.Load())
	}
}
