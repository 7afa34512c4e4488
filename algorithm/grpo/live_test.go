package grpo_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/collect"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/engine"
)

// spell rewards one half of the alphabet.
func spell(ctx context.Context, task agl.Task) (agl.Result, error) {
	if string(task.Rollout.Input) == silent {
		return agl.RewardResult(1), nil
	}
	reply, err := ask(ctx, task)
	if err != nil || !strings.ContainsAny(reply, "aceg") {
		return agl.RewardResult(0), err
	}
	return agl.RewardResult(1), nil
}

// silent is the input of a rollout that does not call the model.
const silent = `"silent"`

// traffic starts rollouts of the service, 16 at a time, until ctx ends. The seeds are fixed, so that the rate before the first update is the same in
// each run of a test.
func traffic(ctx context.Context, s agl.Store) error {
	random := rand.New(rand.NewPCG(1, 2))
	for ctx.Err() == nil {
		rollouts := make([]agl.EnqueueRollout, 16)
		for i := range rollouts {
			rollouts[i] = agl.EnqueueRollout{Input: []byte(`{}`), Metadata: fmt.Appendf(nil, `{"agl.kind":"say","agl.user":"u%d","seed":%d}`, i*i%7, random.Int32())}
		}
		queued, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: rollouts})
		if err != nil {
			return err
		}
		ids := make([]string, len(queued))
		for i, r := range queued {
			ids[i] = r.RolloutID
		}
		if _, err := s.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: ids}); err != nil {
			return err
		}
	}
	return nil
}

// firstPublish tells when a model is served.
type firstPublish struct {
	algorithm.Publisher

	once sync.Once
	done chan struct{}
}

// Publish implements [algorithm.Publisher].
func (p *firstPublish) Publish(ctx context.Context, publication algorithm.Publication) error {
	err := p.Publisher.Publish(ctx, publication)
	if err == nil {
		p.once.Do(func() { close(p.done) })
	}
	return err
}

// learnLive trains a model that a service calls, and returns the reports.
func learnLive(t *testing.T, s *store.Store, model *engine.Engine, dir string, steps int, live grpo.Live) []grpo.StepReport {
	t.Helper()
	return learnLiveFrom(t, spell, s, model, dir, steps, live)
}

// learnLiveFrom is learnLive with another agent.
func learnLiveFrom(t *testing.T, agent agl.AgentFunc, s *store.Store, model *engine.Engine, dir string, steps int, live grpo.Live, change ...func(*grpo.Config)) (reports []grpo.StepReport) {
	t.Helper()
	collector, err := collect.New(collect.Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	llm := trainer.NewProxy(trainer.ProxyConfig{Config: proxy.Config{Models: []proxy.Model{model.Model()}, Transport: model.Transport(nil)}})
	config := grpo.Config{Steps: steps, Live: &live}
	live.Collector, live.Rollouts, live.Filter = collector, 32, agl.CollectFilter{Metadata: map[string]string{grpo.MetadataKind: "say"}}
	config.Seed, config.Flusher, config.OutDir = 1, llm, dir
	publisher := &firstPublish{Publisher: model.Publisher(llm), done: make(chan struct{})}
	config.Service, config.Publisher, config.Schedule.Peak = model.Service, publisher, 0.02
	config.Schedule.Floor = 0.02
	config.ModelName = model.Model().Name // otherwise a run that resumes takes calls of forgotten versions for those of another model
	for _, c := range change {
		c(&config)
	}
	endTraffic := func() {}
	onStep := config.OnStep
	config.OnStep = func(r grpo.StepReport) {
		if onStep != nil {
			onStep(r)
		}
		if reports = append(reports, r); r.Step == steps {
			endTraffic() // before the model is unloaded: calls would fail at once from then on
		}
	}
	learn, err := grpo.New(config)
	if err != nil {
		t.Fatal(err)
	}
	beside := agl.AlgorithmFunc(func(ctx context.Context, in agl.AlgorithmInput) error {
		ctx, stop := context.WithCancel(ctx)
		served, end := context.WithCancel(ctx)
		endTraffic = end
		var service sync.WaitGroup
		var failed error
		service.Go(func() {
			select {
			case <-publisher.done: // until then each call fails at once, and thousands of rollouts would have no tokens
				failed = traffic(served, in.Store)
			case <-served.Done():
			}
			if failed != nil && !agl.IsContextError(failed) {
				stop()
			}
		})
		err := learn.Run(ctx, in)
		stop()
		service.Wait()
		if failed != nil && !agl.IsContextError(failed) {
			return failed
		}
		return err
	})
	run, err := trainer.New(trainer.Config{Agent: agent, Algorithm: beside, Store: s, Proxy: llm, Runners: 4})
	if err == nil {
		err = run.Fit(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return reports
}

// newSpeller returns a policy of the size that the tests of live runs need. It is closed with the test.
func newSpeller(t *testing.T) *engine.Engine {
	t.Helper()
	model, err := engine.NewPolicy(engine.PolicyConfig{Policy: policy.Config{Context: 16, Layers: 1, Dim: 16, Heads: 1, FF: 16, Dir: t.TempDir()}, Characters: "abcdefgsy "})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := model.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	})
	return model
}

// A run learns from rollouts that others start; a second process continues it, and neither
// learns from a rollout that the other has learned from.
func TestLive(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	model := newSpeller(t)
	dir := t.TempDir()
	const half = 15
	reports := slices.Concat(learnLive(t, s, model, dir, half, grpo.Live{}), learnLive(t, s, model, dir, 2*half, grpo.Live{}))
	if len(reports) != 2*half {
		t.Fatalf("%d steps, want %d", len(reports), 2*half)
	}
	learned := map[string]int{}
	for _, r := range reports {
		if r.Step == half+1 && r.Rollouts == 0 {
			t.Error("the step after the restart has no rollouts")
		}
		for _, id := range r.Learned {
			if step, twice := learned[id]; twice {
				t.Errorf("step %d learns from rollout %s, from which step %d has learned", r.Step, id, step)
			}
			learned[id] = r.Step
		}
	}
	t.Logf("pass rates %v", rates(reports))
	all := rates(reports)
	if first, last := average(all[:3]), average(all[len(all)-8:]); last < 0.8 || last < first+0.05 {
		t.Errorf("pass rate %v at first and %v at last, want it to rise above 0.8", first, last)
	}
	if len(learned) < 20*half {
		t.Errorf("learned from %d rollouts in %d steps", len(learned), 2*half)
	}
}

// No user has more rollouts in a step than allowed; the others are passed over, and counted. These, and those that may not be
// learned from, say why.
func TestLivePerUser(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	model := newSpeller(t)
	crowded, withheld := 0, 0
	allow := func(_ context.Context, _ agl.Store, r agl.AttemptedRollout) (bool, error) {
		user, _ := agl.Attributes(r.Metadata).GetString(grpo.MetadataUser)
		return user != "u1", nil
	}
	for _, r := range learnLive(t, s, model, t.TempDir(), 4, grpo.Live{PerUser: 5, Allow: allow}) {
		crowded, withheld = crowded+r.Crowded, withheld+r.Withheld
		of := map[string]int{}
		for _, id := range r.Learned {
			page, err := s.QueryRollouts(t.Context(), agl.QueryRolloutsParams{RolloutIDIn: []string{id}})
			if err != nil || len(page.Items) != 1 {
				t.Fatalf("rollout %s: %v", id, err)
			}
			user, _ := agl.Attributes(page.Items[0].Metadata).GetString(grpo.MetadataUser)
			of[user]++
		}
		for user, n := range of {
			if n > 5 {
				t.Errorf("step %d learned from %d rollouts of %s, want at most 5", r.Step, n, user)
			}
		}
		if r.Rollouts < 8 || r.Rollouts > 32 {
			t.Errorf("step %d has %d rollouts, want 8 to 32", r.Step, r.Rollouts)
		}
	}
	if crowded == 0 {
		t.Error("no rollout was passed over, although one user of four has five of sixteen")
	}
	for reason, reported := range map[string]int{"crowded": crowded, "withheld": withheld} {
		page, err := s.QueryRollouts(t.Context(), agl.QueryRolloutsParams{Labels: []agl.Label{{Name: grpo.MetadataDropped, Value: reason}}})
		if err != nil || page.Total != reported || reported == 0 {
			t.Errorf("%d rollouts say %s (%v), the run reports %d", page.Total, reason, err, reported)
		}
		for _, r := range page.Items {
			if user, _ := agl.Attributes(r.Metadata).GetString(grpo.MetadataUser); user == "" || (user == "u1") != (reason == "withheld") {
				t.Errorf("rollout %s of the user %q says %s", r.RolloutID, user, reason)
			}
		}
	}
}

// Rollouts that have not called the model teach nothing: neither it nor the baseline.
func TestLiveSilent(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	others, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: slices.Repeat([]agl.EnqueueRollout{{Input: []byte(silent), Metadata: []byte(`{"agl.kind":"say"}`)}}, 8)})
	if err != nil {
		t.Fatal(err)
	}
	masked := 0
	for _, r := range learnLive(t, s, newSpeller(t), t.TempDir(), 3, grpo.Live{}) {
		masked += r.Masked[algorithm.MaskNoTokens]
		for _, other := range others {
			if slices.Contains(r.Learned, other.RolloutID) {
				t.Errorf("step %d has learned from rollout %s, which did not call the model", r.Step, other.RolloutID)
			}
		}
	}
	if masked != len(others) {
		t.Errorf("%d rollouts were masked, want %d", masked, len(others))
	}
}

// A run that begins on a store with rollouts of another run, whose weights it does not know, counts each as stale, and warns of the first.
func TestLiveUnknownVersions(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	learnLive(t, s, newSpeller(t), t.TempDir(), 2, grpo.Live{})
	var log strings.Builder
	stale := 0
	for _, r := range learnLiveFrom(t, spell, s, newSpeller(t), t.TempDir(), 2, grpo.Live{}, func(c *grpo.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}) {
		stale += r.Stale
	}
	if stale < 32 {
		t.Errorf("%d rollouts are stale, want all of the other run", stale)
	}
	if n := strings.Count(log.String(), string(algorithm.MaskVersion)); n != 1 {
		t.Errorf("%d warnings of rollouts of unknown versions, want 1: %.500s", n, log.String())
	}
}

// patient is a collector that waits for rollouts however short MaxWait is.
type patient struct{ agl.Collector }

func (p patient) Collect(ctx context.Context, params agl.CollectParams) (agl.Collection, error) {
	params.MaxWait = time.Hour
	return p.Collector.Collect(ctx, params)
}

// A step that finds only rollouts from which nothing is learned says so when it has waited for MaxWait, and why.
func TestLiveWaitsInVain(t *testing.T) {
	t.Parallel()
	for wait, want := range map[time.Duration]int{time.Nanosecond: 1, time.Hour: 0} {
		t.Run(wait.String(), func(t *testing.T) {
			t.Parallel()
			var log strings.Builder
			var read atomic.Int32
			allow := func(context.Context, agl.Store, agl.AttemptedRollout) (bool, error) { return read.Add(1) > 32, nil }
			learnLiveFrom(t, spell, memorytest.Open(t), newSpeller(t), t.TempDir(), 2, grpo.Live{MaxWait: wait, Allow: allow}, func(c *grpo.Config) {
				c.Live.Collector = patient{c.Live.Collector}
				c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			if n := strings.Count(log.String(), "nothing is learned from any"); n != want || want > 0 && !strings.Contains(log.String(), "stale=0 withheld=32 crowded=0") {
				t.Errorf("%d warnings, want %d:\n%.1000s", n, want, log.String())
			}
		})
	}
}

// Rollouts of weights that are too old teach nothing: neither the model nor the baseline.
func TestLiveStale(t *testing.T) {
	t.Parallel()
	s := memorytest.Open(t)
	dir := t.TempDir()
	old := make(chan struct{}) // closed when the weights that have answered the slow rollouts are old
	slow := func(ctx context.Context, task agl.Task) (agl.Result, error) {
		result, err := spell(ctx, task)
		if string(task.Rollout.Input) == `"slow"` {
			<-old
		}
		return result, err
	}
	var read atomic.Int32
	allow := func(ctx context.Context, s agl.Store, _ agl.AttemptedRollout) (bool, error) {
		var err error
		switch read.Add(1) {
		case 1:
			_, err = s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: slices.Repeat([]agl.EnqueueRollout{{Input: []byte(`"slow"`), Metadata: []byte(`{"agl.kind":"say"}`)}}, 2)})
		case 200:
			close(old)
		}
		return true, err
	}
	learned, stale := 0, 0
	const steps = 16
	for _, r := range learnLiveFrom(t, slow, s, newSpeller(t), dir, steps, grpo.Live{MaxStaleness: 1, Allow: allow}) {
		learned, stale = learned+len(r.Learned), stale+r.Stale
	}
	data, err := os.ReadFile(filepath.Join(dir, "checkpoints", fmt.Sprintf("checkpoint-%08d.json", steps)))
	if err != nil {
		t.Fatal(err)
	}
	var checkpoint struct {
		Own struct {
			Source struct {
				All struct {
					N int `json:"n"`
				} `json:"all"`
			} `json:"source"`
		} `json:"state"`
	}
	if err := json.Unmarshal(data, &checkpoint); err != nil {
		t.Fatal(err)
	}
	if n := checkpoint.Own.Source.All.N; stale == 0 || n != learned {
		t.Errorf("the baseline is of %d rollouts, want the %d that count; %d were stale", n, learned, stale)
	}
}

func TestLiveSettings(t *testing.T) {
	t.Parallel()
	service, err := policy.NewService(policy.Config{Vocab: 2})
	if err != nil {
		t.Fatal(err)
	}
	for name, live := range map[string]*grpo.Live{
		"no collector": {}, "least": {Collector: nobody{}, Rollouts: 4, Least: 5}, "rate": {Collector: nobody{}, Rate: 1}, "wait": {Collector: nobody{}, MaxWait: -1},
	} {
		if _, err := grpo.New(grpo.Config{TrainingConfig: algorithm.TrainingConfig{Service: service}, Live: live}); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

type nobody struct{}

func (nobody) Collect(context.Context, agl.CollectParams) (agl.Collection, error) {
	return agl.Collection{}, nil
}

// rates are the pass rates of the steps. One that has only calls that failed, as those that come when a process ends and its model is unloaded, has none.
func rates(reports []grpo.StepReport) (list []float64) {
	for _, r := range reports {
		if len(r.Learned) > 0 {
			list = append(list, r.PassRate)
		}
	}
	return list
}

func average(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// TestReplay: each rollout is learned from again at most as often as allowed, within the staleness bound, also over a restart; and the
// run learns.
func TestReplay(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and its goroutines are those of other tests")
	}
	s := memorytest.Open(t)
	model := newSpeller(t)
	dir := t.TempDir()
	const half, times, stale = 10, 2, 3
	live := grpo.Live{MaxStaleness: stale, Replay: grpo.Replay{Times: times, Rollouts: 24}}
	// Agents run no further ahead than a step learns from: on a busy machine each new rollout would be as stale as is allowed, and none
	// could be learned from again.
	turns := make(chan struct{}, 32)
	paced := func(ctx context.Context, task agl.Task) (agl.Result, error) {
		select {
		case <-turns:
			return spell(ctx, task)
		case <-ctx.Done():
			return agl.Result{}, ctx.Err()
		}
	}
	fill := func(grpo.StepReport) {
		for len(turns) < cap(turns) {
			turns <- struct{}{}
		}
	}
	fill(grpo.StepReport{})
	learn := func(steps int) []grpo.StepReport {
		return learnLiveFrom(t, paced, s, model, dir, steps, live, func(c *grpo.Config) { c.OnStep = fill })
	}
	reports := slices.Concat(learn(half), learn(2*half))
	learned, replays := map[string]int{}, map[string]int{}
	total, overRestart, apart := 0, 0, 0
	for _, r := range reports {
		for _, id := range r.Replayed {
			total++
			if replays[id]++; replays[id] > times {
				t.Errorf("step %d learns for the %d. time from rollout %s", r.Step, replays[id]+1, id)
			}
			step, known := learned[id]
			if !known {
				t.Errorf("step %d replays rollout %s, which no step has learned from", r.Step, id)
			}
			if step <= half && r.Step > half {
				overRestart++
			}
		}
		for _, id := range r.Learned {
			if step, twice := learned[id]; twice {
				t.Errorf("step %d learns from rollout %s as a new one, from which step %d has learned", r.Step, id, step)
			}
			learned[id] = r.Step
		}
		apart += r.ReplayedTokens
		if len(r.Replayed) == 0 && r.ReplayedTokens > 0 || r.GroupsUsed+r.GroupsSkipped != r.Groups || r.Groups != r.Rollouts {
			t.Errorf("step %d: replayed rollouts are counted as new: %d groups of %d rollouts, %d used and %d skipped", r.Step, r.Groups, r.Rollouts, r.GroupsUsed, r.GroupsSkipped)
		}
		if n := len(r.Learned); r.Rollouts < n || r.Rollouts > 32 || len(r.Replayed) > 24 || r.Staleness.Max > stale || r.Updates > 0 && r.Drift == nil {
			t.Errorf("step %d: %d rollouts, of which %d are new and %d replayed; staleness %v, drift %v", r.Step, r.Rollouts, len(r.Learned), len(r.Replayed), r.Staleness, r.Drift)
		}
	}
	if total < half*times || overRestart == 0 || apart == 0 {
		t.Errorf("%d rollouts with %d tokens were replayed, %d of them after the restart", total, apart, overRestart)
	}
	all := rates(reports)
	t.Logf("pass rates %.2f", all)
	// Once all rewards are equal, an advantage in units of their deviation is as large as they are rare.
	// The restart interrupts agents, which then earn nothing.
	if first, then := all[0], average(all[half-4:half]); then < first+0.1 || then < 0.9 {
		t.Errorf("pass rate %v at first and %v then, want it to rise", first, then)
	}
}
