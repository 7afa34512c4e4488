package job

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"sync/atomic"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/panics"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/tracker"
)

// warmStartDir has the checkpoints of the warm start, in the folder of the run.
const warmStartDir = "warmstart"

// learner makes the first weights and runs the algorithm of the file.
type learner struct {
	cfg     Config
	outDir  string
	runID   string
	engine  *engine.Engine // nil if nothing trains weights
	proxy   *trainer.Proxy // nil if no model is called
	display display.Display
	warn    func(text string)
	token   string // of the store
	// earlier is the record as earlier processes left it, if the run resumes with a corrected run file; otherwise nil.
	earlier *output.Record

	stored     *tracker.Run                   // nil before Start, and if the store keeps no runs
	began      atomic.Bool                    // Run was called, which closes stored
	ended      atomic.Bool                    // Run has returned
	first      string                         // the first weights; empty is a new model
	run        algorithms.Run                 // nil before it is built
	publishers map[string]algorithm.Publisher // of the models of several agents, by name
	enqueued   atomic.Bool                    // the algorithm has rollouts
	stepped    atomic.Bool                    // the algorithm has a line of metrics
}

// enqueuing notes that rollouts are enqueued.
type enqueuing struct {
	agl.Store

	noted *atomic.Bool
}

func (e enqueuing) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	e.noted.Store(true)
	return e.Store.EnqueueRollouts(ctx, p)
}

var (
	_ agl.Algorithm       = (*learner)(nil)
	_ trainer.CallLearner = (*learner)(nil)
	_ trainer.Starter     = (*learner)(nil)
)

func (l *learner) LearnsFromCalls() bool { return l.cfg.File.Algorithm.Needs().Calls }

func (l *learner) Start(ctx context.Context, s agl.Store) (err error) {
	l.stored, err = l.cfg.startRun(ctx, agl.RunsOf(s), l.runID, l.outDir, l.outcome)
	return err
}

func (l *learner) Stop(ctx context.Context) error {
	switch {
	case l.stored == nil:
		return nil
	case !l.began.Load():
		return l.stored.Close(ctx, errors.New("the run ended before its algorithm began"))
	case !l.ended.Load() || background.Closed(execution.Forced(ctx)): // the algorithm was left running, or a person is in a hurry
		return nil
	}
	return l.stored.CloseAgain(ctx)
}

func (l *learner) Run(ctx context.Context, in agl.AlgorithmInput) (err error) {
	l.began.Store(true)
	defer l.ended.Store(true)
	trackers, err := l.cfg.openTrackers(ctx, l.stored, l.outDir)
	if err != nil {
		return err
	}
	defer func() {
		trackers.Close(context.WithoutCancel(ctx), panics.Located(l.outcome(reason(ctx, err))))
	}()
	err = panics.ErrGoexit // unless learn returns
	err = panics.Catch(func() error { return l.learn(ctx, in, trackers) })
	return err
}

// learn makes the first weights and runs the algorithm.
func (l *learner) learn(ctx context.Context, in agl.AlgorithmInput, trackers *tracker.Set) error {
	if path := l.cfg.File.Algorithm.Needs().Demonstrations; path != "" && l.engine != nil { // report a mistake in it before a warm start
		if _, err := l.engine.Demonstrations(ctx, l.model().BaseModel, path); err != nil {
			return err
		}
	}
	weights, err := l.initialWeights(ctx)
	if err != nil {
		return err
	}
	l.first = weights
	a := l.cfg.File.Algorithm
	parts := l.parts(weights, in.InitialResources)
	parts.RunConfig.OnMetrics = func(ctx context.Context, line []byte) {
		l.stepped.Store(true)
		trackers.Line(ctx, line)
	}
	run, err := a.New(parts)
	if err != nil {
		return err
	}
	l.run = run
	if err := l.serveFrozen(ctx, weights); err != nil {
		return err
	}
	if l.engine != nil && a.Needs().Losses == nil { // the algorithm publishes no weights
		if err := l.serve(ctx, weights); err != nil {
			return err
		}
	}
	in.Store = enqueuing{in.Store, &l.enqueued}
	watch := runnerWatch{store: in.Store, url: in.StoreURL, notice: l.display.Notice}
	if l.cfg.File.Store.URL == "" {
		watch.unresponsive = l.cfg.File.Store.Unresponsive
	}
	if l.cfg.Role == execution.RoleAlgorithm || !l.cfg.hasAgent() {
		defer background.Start(ctx, watch.missing)()
	}
	defer background.Start(ctx, watch.silent)()
	return run.Run(ctx, in)
}

// learned reports whether the algorithm has got past what it refuses to continue: it has rollouts, or a step.
func (l *learner) learned() bool { return l.enqueued.Load() || l.stepped.Load() }

// outcome returns the error with which the run ends in its trackers, given the algorithm's. If the algorithm refuses a corrected run file,
// that is how the run had ended before: see [output.Folder.Revert].
func (l *learner) outcome(err error) error {
	if l.earlier == nil || l.learned() || !errors.Is(err, agl.ErrConflict) {
		return err
	}
	switch l.earlier.State {
	case output.StateFinished:
		return nil
	case output.StateInterrupted:
		return interruptedError(l.earlier.Error)
	case output.StateFailed:
		return errors.New(l.earlier.Error)
	case output.StateRunning: // its process was killed
	}
	return err
}

// interruptedError is why an earlier process was interrupted.
type interruptedError string

func (e interruptedError) Error() string { return string(e) }

// Is makes the run count as interrupted.
func (interruptedError) Is(target error) bool { return target == context.Canceled }

// reason returns why an algorithm has ended, given its error: when its context was cancelled, what has ended the run.
func reason(ctx context.Context, err error) error {
	cause := context.Cause(ctx)
	if err == nil || cause == nil {
		return err
	}
	if trainer.IsUseless(cause) {
		return cause
	}
	if stopped, ok := errors.AsType[*execution.StopError](cause); ok && agl.IsContextError(err) {
		return stopped.Cause
	}
	return err
}

// parts are what the algorithm gets.
func (l *learner) parts(weights string, resources agl.Resources) algorithms.Parts {
	file := l.cfg.File
	p := algorithms.Parts{
		RunConfig: algorithm.RunConfig{Flusher: l.flusher(), Rollout: file.Agent.Rollout, Seed: file.Seed, RunID: l.runID, OutDir: l.outDir, Logger: l.cfg.Logger},
		Proxied:   l.proxy != nil, TLS: l.cfg.TLS, LookupEnv: l.cfg.LookupEnv, Environ: l.cfg.Environ, Reaper: l.cfg.Reaper, StoreToken: l.token, Display: l.display, Warn: l.warn,
		PromptReleaser: func(proposal release.Proposal) apo.Releaser {
			return &promptReleaser{trials{l.proxy, proposal, func(r *release.Release, version string) bool { return r.Candidate.ResourcesID == version }}}
		},
		Resolve: func(m algorithms.Model) (algorithms.Model, error) { return l.resolve(m, resources) },
	}
	if l.engine != nil {
		publisher := l.publisher()
		p.Training = algorithm.TrainingConfig{Service: l.engine.Service, Model: l.model(), InitialWeights: weights, Origin: l.origin(), Publisher: publisher, ModelName: l.engine.Model().Name}
		p.Releaser = func(store agl.Store, proposal release.Proposal) algorithm.Releaser {
			r := &releaser{trials: trials{proxy: l.proxy, proposal: proposal}, publisher: publisher, store: store, model: l.engine.Model().Name}
			r.tries = func(one *release.Release, version string) bool {
				return one.Model == r.model && one.Candidate.Model == r.name(version)
			}
			return r
		}
		p.Demonstrations = func(ctx context.Context, path string) ([]tinker.Datum, error) {
			return l.engine.Demonstrations(ctx, l.model().BaseModel, path)
		}
		if file.Engine.Tinker != nil && file.Engine.Tinker.Chat.Folder != "" {
			p.Training.Schedule, p.Training.Adam.Beta2 = algorithms.PretrainedSchedule(), algorithms.PretrainedBeta2
		}
	}
	p.Roles = l.roles(p.Training)
	if file.Proxy != nil {
		p.Training.Validation.Sampling = file.Proxy.ValSampling
	}
	return p
}

// resolve completes a model that the algorithm calls: without a URL it is one of the
// run's proxy.
func (l *learner) resolve(m algorithms.Model, resources agl.Resources) (_ algorithms.Model, err error) {
	if m.BaseURL == "" {
		llm, ok := proxyOf(resources)
		if !ok {
			return m, agl.Errorf(agl.CodeInvalid, "%s: no base_url is given, and the run has no proxy whose model it could be", m.Key)
		}
		m.BaseURL = llm.Endpoint
		if m.APIKey == "" {
			m.APIKey = l.proxy.Token()
		}
	}
	m.APIKey, err = keys.Secret(l.cfg.LookupEnv, m.Key+".api_key", m.APIKey)
	return m, err
}

// proxyOf finds the run's proxy among the resources.
func proxyOf(resources agl.Resources) (agl.ProxyLLM, bool) {
	for _, r := range resources {
		if llm, ok := r.Resource.(agl.ProxyLLM); ok {
			return llm, true
		}
	}
	return agl.ProxyLLM{}, false
}

// model describes the model in training.
func (l *learner) model() tinker.CreateModelParams {
	p := tinker.CreateModelParams{Seed: l.cfg.File.ModelSeed()}
	if t := l.cfg.File.Engine.Tinker; t != nil {
		p.BaseModel, p.LoRARank = t.Model, t.LoRARank
	}
	return p
}

// initialWeights makes the first weights by a warm start, or returns those of the
// file; empty is the base model.
func (l *learner) initialWeights(ctx context.Context) (weights string, err error) {
	file := l.cfg.File.Engine.WarmStart()
	if file == nil {
		return l.fileWeights(), nil
	}
	w := *file
	w.Model, w.Seed, w.Logger = l.model(), l.cfg.File.Seed, l.cfg.Logger
	w.OutDir, w.OnStep = filepath.Join(l.outDir, warmStartDir), algorithms.ShowWarmStart(l.display)
	return l.engine.WarmStart(ctx, w)
}

// fileWeights are the first weights that the file names.
func (l *learner) fileWeights() string {
	if e := l.cfg.File.Engine; e != nil && e.Tinker != nil {
		return e.Tinker.Weights
	}
	return ""
}

// origin says where the first weights come from. How a warm start was made is in its own checkpoints.
func (l *learner) origin() string {
	if l.cfg.File.Engine.WarmStart() != nil {
		return "warm_start"
	}
	return cmp.Or(l.fileWeights(), "base model")
}

// serve serves weights that are not trained any further; empty is a new model.
func (l *learner) serve(ctx context.Context, weights string) error {
	snapshot, err := l.engine.Snapshot(ctx, l.model(), weights)
	if err != nil {
		return err
	}
	return l.publisher().Publish(ctx, algorithm.Publication{Snapshot: snapshot, Version: "initial"})
}

// roles are the agents in training, if the file has several.
func (l *learner) roles(t algorithm.TrainingConfig) (trained []algorithm.Role) {
	l.publishRoles()
	for i, role := range l.cfg.File.Roles {
		if role.Frozen {
			continue
		}
		one := role.Role
		one.Model, one.InitialWeights, one.Publisher = t.Model, t.InitialWeights, l.publishers[one.ModelName]
		one.Model.Seed += uint64(i)
		trained = append(trained, one)
	}
	return trained
}

// publishRoles makes the publishers of the agents, if the file has several.
func (l *learner) publishRoles() {
	list := l.cfg.File.Roles
	if len(list) == 0 {
		return
	}
	names := make([]string, len(list))
	for i, role := range list {
		names[i] = role.ModelName
	}
	l.publishers = map[string]algorithm.Publisher{}
	for i, p := range l.engine.Publishers(l.proxy, names, l.others()...) {
		l.publishers[names[i]] = p
	}
}

// serveFrozen serves the first weights to the agents that are not trained.
func (l *learner) serveFrozen(ctx context.Context, weights string) error {
	for i, role := range l.cfg.File.Roles {
		if role.Frozen {
			if err := l.serveRole(ctx, i, weights); err != nil {
				return err
			}
		}
	}
	return nil
}

// best adds the weights of the agents that are not trained to those of the run.
func (l *learner) best(found *algorithms.Best) *algorithms.Best {
	if found == nil || found.Weights == "" || l.first == "" {
		return found
	}
	all := *found
	all.Agents = maps.Clone(found.Agents)
	for _, role := range l.cfg.File.Roles {
		if role.Frozen {
			if all.Agents == nil {
				all.Agents = map[string]string{}
			}
			all.Agents[role.Name] = l.first
		}
	}
	return &all
}

// serveAll serves the first weights to all agents.
func (l *learner) serveAll(ctx context.Context, weights string) error {
	if len(l.cfg.File.Roles) == 0 {
		return l.serve(ctx, weights)
	}
	l.publishRoles()
	for i := range l.cfg.File.Roles {
		if err := l.serveRole(ctx, i, weights); err != nil {
			return err
		}
	}
	return nil
}

// serveRole serves weights to one of several agents; empty is a new model.
func (l *learner) serveRole(ctx context.Context, i int, weights string) error {
	role, model := l.cfg.File.Roles[i], l.model()
	model.Seed += uint64(i)
	snapshot, err := l.engine.Snapshot(ctx, model, cmp.Or(l.cfg.agents[role.Name], weights))
	if err == nil {
		err = l.publishers[role.ModelName].Publish(ctx, algorithm.Publication{Snapshot: snapshot, Version: "initial." + role.Name})
	}
	if err != nil {
		return fmt.Errorf("agents.%s: %w", role.Name, err)
	}
	return nil
}

// publisher swaps the model in the proxy, beside the models that are not trained.
func (l *learner) publisher() *engine.Publisher {
	return l.engine.Publisher(l.proxy, l.others()...)
}

// others are the models of the proxy that the engine does not serve.
func (l *learner) others() []proxy.Model {
	if l.cfg.File.Proxy == nil {
		return nil
	}
	return l.cfg.File.Proxy.Config.Models
}

// flusher is the proxy, if there is one.
func (l *learner) flusher() algorithm.Flusher {
	if l.proxy == nil {
		return nil
	}
	return l.proxy
}
