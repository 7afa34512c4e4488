package job

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/engine"
)

// Result is what a run came to. One of its last four fields is set.
type Result struct {
	Record
	// Output is the folder; Report the path of its report.
	Output string
	Report string
	// Curve is the pass rate of each step of this process, for a terminal.
	Curve string
	// Warning is what makes the result doubtful; usually empty.
	Warning string

	GRPO     *algorithm.Summary
	SFT      *sft.Summary
	APO      *apo.Report
	Baseline *baseline.Report
}

// Run plays this process's part of a run to its end. Its error is the strategy's
// (see [execution.ExitCode]), also when it has a result: what a run came to until
// it was interrupted, or failed.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if len(cfg.File.Agent.Process.Command) == 0 && cfg.Role == execution.RoleBoth {
		cfg.Role = execution.RoleAlgorithm // runners elsewhere join
	}
	if cfg.Role == execution.RoleRunner {
		return nil, cfg.runRunners(ctx)
	}
	out, finished, err := openFolder(cfg)
	if err != nil {
		return nil, err
	}
	if finished {
		return &Result{Record: out.record, Output: out.path, Report: out.file(reportFile)}, out.close()
	}
	r := &run{cfg: cfg, folder: out}
	failure := r.fit(ctx)
	result, err := r.conclude(failure)
	err = errors.Join(err, out.close())
	if failure != nil {
		if err != nil {
			cfg.Logger.Error("the output folder is not complete", "error", err)
		}
		return result, failure
	}
	return result, err
}

// run is a run that leads: it has the algorithm.
type run struct {
	cfg     Config
	folder  *folder
	learner *learner
	guard   *guard // of the agent; nil where it runs elsewhere
	curve   *display.Curve
	notes   notes
}

// fit runs the algorithm and, in the role both, the agents.
func (r *run) fit(ctx context.Context) (err error) {
	cfg := r.cfg
	fitting, giveUp := context.WithCancelCause(ctx)
	defer giveUp(nil)
	token, err := cfg.storeToken()
	if err != nil {
		return err
	}
	train, val, err := loadData(cfg.File.Data)
	if err != nil {
		return err
	}
	notice, err := cfg.reach()
	if err != nil {
		return err
	}
	trained, err := cfg.newEngine(ctx, r.folder.path, giveUp)
	if err != nil {
		return err
	}
	if trained != nil {
		defer func() { err = errors.Join(err, trained.Close(context.WithoutCancel(ctx))) }()
	}
	strategy, storeURL, err := cfg.strategy(ctx, token)
	if err != nil {
		return err
	}
	r.learner = &learner{cfg: cfg, outDir: r.folder.path, engine: trained, proxy: cfg.newProxy(trained, token)}
	config := trainer.Config{
		Algorithm: r.learner, Train: train,
		InitialResources: slices.Clone(cfg.File.Prompts), Proxy: r.learner.proxy,
		Database: cfg.database(r.folder.path), Unresponsive: cfg.File.Store.Unresponsive,
		Strategy: strategy, Runners: cfg.File.Agent.Concurrency, Runner: cfg.runnerConfig(), Logger: cfg.Logger,
	}
	if val != nil {
		config.Val = val
	}
	// An agent without model or prompt gets by with an empty bundle.
	config.OwnResources = len(config.InitialResources) == 0 && config.Proxy == nil
	if cfg.Role == execution.RoleBoth {
		agent, err := cfg.newAgent(storeURL, token)
		if err != nil {
			return errors.Join(err, closeListener(strategy))
		}
		defer agent.Close()
		r.guard = &guard{agent: agent, giveUp: giveUp}
		config.Agent = r.guard
	}
	r.curve = &display.Curve{Display: display.New(cfg.Terminal, r.displayOptions())}
	defer r.curve.Close()
	if notice != "" && r.learner.proxy != nil {
		r.curve.OnNotice(notice)
	}
	// Agents may take their time to end; who has pressed Ctrl-C is to know why.
	defer context.AfterFunc(ctx, func() {
		r.curve.OnNotice("stopping: agents have " + cfg.patience().String() + " to end; a second signal ends them sooner")
	})()
	r.learner.display = &watched{Display: r.curve, run: r}
	t, err := trainer.New(config)
	if err != nil {
		return errors.Join(err, closeListener(strategy))
	}
	if cfg.Listening != nil {
		cfg.Listening(storeURL)
	}
	err = t.Fit(fitting)
	if r.guard != nil {
		r.guard.wait(config.Runner.GracePeriod)
	}
	return err
}

// closeListener gives back what a strategy that is not used has taken.
func closeListener(s execution.ClientServer) error {
	if s.Listener == nil {
		return nil
	}
	return s.Listener.Close()
}

func (r *run) displayOptions() display.Options {
	o := display.Options{Out: r.cfg.Out, Began: r.folder.opened, Log: r.cfg.Log}
	file := r.cfg.File
	if w := file.Engine.WarmStart(); w != nil {
		if o.WarmSteps = w.Steps; o.WarmSteps == 0 {
			o.WarmSteps = engine.DefaultWarmSteps
		}
	}
	switch {
	case file.Algorithm.GRPO != nil:
		o.Steps = file.Algorithm.GRPO.Steps
	case file.Algorithm.APO != nil:
		if o.Rounds = file.Algorithm.APO.Config.Rounds; o.Rounds == 0 {
			o.Rounds = apo.DefaultRounds
		}
	}
	if proxy := r.learner.proxy; proxy != nil {
		o.Tokens = func() display.Tokens {
			u := r.folder.before.usage.Plus(proxy.Usage())
			return display.Tokens{Calls: u.Calls, Prompt: u.PromptTokens, Completion: u.CompletionTokens}
		}
	}
	return o
}

// usage is what the model calls of this process have used.
func (r *run) usage() trainer.Usage {
	if r.learner == nil || r.learner.proxy == nil {
		return trainer.Usage{}
	}
	return r.learner.proxy.Usage()
}

// database is where the run is kept, in the form of trainer.Config.
func (c Config) database(outDir string) string {
	switch {
	case c.File.Store.URL != "":
		return ""
	case c.File.Store.Database != "":
		return c.File.Store.Database
	default:
		return "sqlite:" + outDir + "/" + databaseFile
	}
}

// strategy says where the sides of the run are: runners in this process, and
// elsewhere for who finds the store. It returns where agents find it.
func (c Config) strategy(ctx context.Context, token string) (s execution.ClientServer, storeURL string, err error) {
	s = execution.ClientServer{
		Config: execution.Config{Role: c.Role, Token: token}, InProcess: true, GracefulTimeout: c.patience(), Logger: c.Logger,
	}
	if c.File.Store.URL != "" {
		s.StoreURL, s.ExternalStore = c.storeURL(), true
		return s, s.StoreURL, nil
	}
	address := c.File.Store.Listen
	switch {
	case address != "":
	case c.Role == execution.RoleAlgorithm:
		address = defaultStoreListen
	default:
		address = loopbackListen
	}
	var listening net.ListenConfig
	if s.Listener, err = listening.Listen(ctx, "tcp", address); err != nil {
		return s, "", fmt.Errorf("store.listen: %w", err)
	}
	return s, execution.ClientURL(s.Listener), nil
}

// patience is how long runners may take to finish what they had taken: an agent
// that is told to end has its grace period for it.
func (c Config) patience() time.Duration {
	const least = 10 * time.Second
	return max(least, c.runnerConfig().GracePeriod+least/2)
}

// runRunners plays the role runner.
func (c Config) runRunners(ctx context.Context) error {
	token, err := c.storeToken()
	if err != nil {
		return err
	}
	storeURL := c.storeURL()
	agent, err := c.newAgent(storeURL, token)
	if err != nil {
		return err
	}
	defer agent.Close()
	runners := c.runnerConfig()
	runners.ProxyToken = token
	t, err := trainer.New(trainer.Config{
		Agent: agent, Runners: c.File.Agent.Concurrency, Runner: runners, Logger: c.Logger,
		Strategy: execution.ClientServer{
			Config:          execution.Config{Role: execution.RoleRunner, StoreURL: storeURL, ExternalStore: true, Token: token},
			GracefulTimeout: c.patience(), Logger: c.Logger,
		},
	})
	if err != nil {
		return err
	}
	return t.Fit(ctx)
}

// algorithmName is that of the file.
func (c Config) algorithmName() string {
	switch {
	case c.File.Algorithm.GRPO != nil:
		return "grpo"
	case c.File.Algorithm.SFT != nil:
		return "sft"
	case c.File.Algorithm.APO != nil:
		return "apo"
	default:
		return "baseline"
	}
}

// watched is a display beside which the record of the run is kept.
type watched struct {
	display.Display

	run   *run
	noted time.Time // after a task, which may be many a second
}

// betweenNotes is how far the record may be behind.
const betweenNotes = time.Second

// note saves what was used so far, so that a run which is killed has it.
func (w *watched) note() {
	w.run.folder.spend(w.run.usage())
	if err := w.run.folder.save(); err != nil {
		w.run.cfg.Logger.Warn("the record of the run is behind", "error", err)
	}
}

// OnStep implements [display.Display].
func (w *watched) OnStep(s grpo.StepReport) {
	w.Display.OnStep(s)
	w.note()
}

// OnNotice implements [display.Display]: there are few, such as one for each round of
// fine-tuning.
func (w *watched) OnNotice(text string) {
	w.Display.OnNotice(text)
	w.note()
}

// OnTask implements [display.Display].
func (w *watched) OnTask(f baseline.Finished) {
	w.Display.OnTask(f)
	if time.Since(w.noted) > betweenNotes {
		w.noted = time.Now()
		w.note()
	}
}

// OnRound implements [display.Display].
func (w *watched) OnRound(r apo.Round) {
	w.Display.OnRound(r)
	w.note()
}

// OnWarning implements [display.Display].
func (w *watched) OnWarning(warning algorithm.Warning) {
	w.Display.OnWarning(warning)
	w.run.notes.add(warning.Message)
}

// notes are what a person should read in the report.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, text)
}

var _ display.Display = (*watched)(nil)
