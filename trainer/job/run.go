package job

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/terminal"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/output"
)

// Run runs this process's part of a run to its end. Its error is that of the strategy
// (see [execution.ExitCode]). With an error it may also return a result: that of the run
// until it was interrupted, or failed.
func Run(ctx context.Context, cfg Config) (*Result, error) {
	if cfg.Resume && cfg.StoreURL == "" && cfg.Role != execution.RoleRunner {
		cfg.StoreURL = cfg.earlierStore()
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if !cfg.hasAgent() && cfg.Role == execution.RoleBoth {
		cfg.Role = execution.RoleAlgorithm // runners elsewhere join
	}
	if cfg.Role == execution.RoleRunner {
		return nil, cfg.runRunners(ctx)
	}
	// What cannot start should not touch the folder: with Overwrite it has an earlier run.
	start, err := cfg.prepare()
	if err != nil {
		return nil, err
	}
	folder, err := output.Open(output.Params{
		Path: cfg.File.Output, Resume: cfg.Resume, Overwrite: cfg.Overwrite, Numbered: cfg.Numbered, Source: cfg.Source, Version: cfg.Version, Algorithm: cfg.File.Algorithm.Name(), Seed: cfg.File.Seed,
		StoreURL: givenStore(cfg), Worked: func(folder string) bool { return hasRollouts(ctx, folder) },
	})
	if err != nil {
		return nil, err
	}
	r := &localRun{cfg: cfg, folder: folder}
	if folder.Record.State == output.StateFinished {
		return r.newResult(), folder.Close()
	}
	failure := r.fit(ctx, start)
	if failure != nil && !cfg.Resume && !isInterrupt(failure) && !r.started() && !hasRollouts(ctx, folder.Path) {
		return nil, errors.Join(failure, folder.Discard())
	}
	result, err := r.finish(ctx, failure)
	err = errors.Join(err, folder.Close())
	if failure != nil {
		if err != nil {
			cfg.Logger.Error("the output folder is incomplete", "error", err)
		}
		return result, failure
	}
	return result, err
}

// givenStore returns the URL of the store server that is used instead of the file's store, without a token.
func givenStore(cfg Config) string {
	public, _ := client.SplitURL(cfg.StoreURL)
	return public
}

// earlierStore returns the URL of the store server that the run to resume was begun with, if that is not in its run
// file. A corrected run file that names a store server overrides it.
func (c Config) earlierStore() string {
	record, kept, err := output.Read(c.File.Output)
	if err != nil || c.File.Store.URL != "" && c.Source.Text != nil && !bytes.Equal(c.Source.Text, kept.Text) {
		return "" // what is wrong with the folder is found when it is opened
	}
	return record.StoreURL
}

// hasRollouts reports whether the store in the folder of a run holds rollouts, or may hold some.
func hasRollouts(ctx context.Context, folder string) bool {
	path := filepath.Join(folder, keys.DatabaseFile)
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return false
	}
	db, err := store.OpenDatabase(ctx, string(store.SQLite)+":"+path)
	if err != nil {
		return true
	}
	status, err := db.Status(ctx)
	return errors.Join(err, db.Close()) != nil || status.Contents.TotalRollouts > 0
}

// localRun is a run in the process of its algorithm.
type localRun struct {
	cfg     Config
	folder  *output.Folder
	learner *learner
	agent   *countedAgent            // nil if it runs elsewhere
	failed  func() []trainer.Failure // nil before the trainer is made
	notes   notes
}

// started reports whether the run has done anything, or has written what a person should
// read, such as the output of an inference server that does not start.
func (r *localRun) started() bool {
	if r.learner == nil {
		return r.cfg.File.Engine != nil && r.cfg.File.Engine.Server != nil
	}
	if _, program := r.cfg.File.Algorithm.(*algorithms.Command); program && r.learner.run != nil && r.cfg.sharesStore() {
		return true // what it has done is in that store
	}
	_, err := os.Stat(r.folder.File(warmStartDir))
	return err == nil || r.learner.enqueued.Load() || r.usage().Calls > 0
}

// learned reports whether the algorithm has got past what it refuses to continue.
func (r *localRun) learned() bool { return r.learner != nil && r.learner.learned() }

func isInterrupt(failure error) bool {
	_, signalled := errors.AsType[*execution.InterruptError](failure)
	return signalled || agl.IsContextError(failure)
}

// prepared is what a run needs, read before it begins.
type prepared struct {
	token      string // of the store
	train, val agl.Tasks
	notice     string // for a person, about addresses that others reach; may be empty
}

func (c Config) prepare() (p prepared, err error) {
	if p.token, err = c.storeToken(); err != nil {
		return p, err
	}
	if p.train, p.val, err = loadData(c.File.Data); err != nil {
		return p, err
	}
	p.notice, err = c.checkReach(p.token)
	return p, err
}

// fit runs the algorithm and, in the role both, the agents.
func (r *localRun) fit(ctx context.Context, start prepared) (err error) {
	cfg, token := r.cfg, start.token
	fitting, abort := context.WithCancelCause(ctx)
	defer abort(nil)
	defer r.watchFolder(ctx, abort)()
	trained, err := cfg.newEngine(ctx, r.folder.Path, abort)
	if err != nil {
		return err
	}
	if trained != nil {
		defer func() { err = errors.Join(err, trained.Close(context.WithoutCancel(ctx))) }()
	}
	served, stopServer, err := cfg.startServer(ctx, r.folder.Path, abort)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer()) }()
	strategy, storeURL, err := cfg.strategy(ctx, token)
	if err != nil {
		return err
	}
	r.learner = &learner{cfg: cfg, outDir: r.folder.Path, runID: r.folder.Record.ID, engine: trained, proxy: cfg.newProxy(trained, served, token), warn: r.notes.add, token: token, earlier: r.folder.Earlier()}
	config := trainer.Config{
		Algorithm: r.learner, Train: datasetOf(start.train), Val: datasetOf(start.val),
		InitialResources: slices.Clone(cfg.File.Prompts), Proxy: r.learner.proxy,
		Database: cfg.database(r.folder.Path), Unresponsive: cfg.File.Store.Unresponsive,
		Strategy: strategy, Runners: cfg.File.Agent.Concurrency, Runner: cfg.runnerConfig(), Logger: cfg.Logger,
	}
	// An agent without a model and without prompts runs with an empty bundle.
	config.OwnResources = len(config.InitialResources) == 0 && config.Proxy == nil
	if cfg.Role == execution.RoleBoth {
		agent, closeAgent, err := cfg.newAgent(ctx, storeURL, token)
		if err != nil {
			return errors.Join(err, closeListener(strategy))
		}
		defer closeAgent()
		r.agent = &countedAgent{Agent: agent, notice: func(text string) { r.learner.display.Notice(text) }}
		config.Agent = r.agent
	}
	shown := &recorded{Display: display.New(cfg.Terminal, r.displayOptions()), run: r}
	defer shown.Close()
	r.learner.display = shown
	shown.Notice("store: " + storeURL)
	if r.folder.Path != cfg.File.Output {
		shown.Notice(cfg.File.Output + " has an earlier run, so this one is in " + r.folder.Path)
	}
	if start.notice != "" && r.learner.proxy != nil {
		shown.Notice(start.notice)
	}
	if untrained := cfg.untrained(); untrained != "" && !cfg.Resume {
		shown.Notice("warning: " + untrained)
		r.notes.add(untrained)
	}
	for _, doubt := range doubts(start.train, start.val, trains(cfg.File)) {
		shown.Notice("warning: " + doubt)
		r.notes.add(doubt)
	}
	// Agents may take their time to end; the person who pressed Ctrl-C should know why.
	stopping := "stopping; a second signal stops at once"
	if cfg.Role == execution.RoleBoth {
		stopping = "stopping: agents have " + cfg.drainTimeout().String() + " to end; a second signal ends them sooner"
	}
	defer context.AfterFunc(ctx, func() { shown.Notice(stopping) })()
	t, err := trainer.New(config)
	if err != nil {
		return errors.Join(err, closeListener(strategy))
	}
	if cfg.Listening != nil {
		cfg.Listening(storeURL)
	}
	r.failed = t.Failures
	err = t.Fit(fitting)
	if spool, ok := errors.AsType[*proxy.SpoolError](err); ok {
		err = spool.Named(strings.TrimPrefix(cfg.Source.Path+": proxy.capture.spool_dir", ": ")) // a Go program may have no file
	}
	if r.agent != nil {
		r.agent.wait(config.Runner.GracePeriod)
	}
	if !r.started() {
		err = cfg.explainToken(err)
	}
	return err
}

// watchFolder ends the run if its folder goes away, until stop is called, also while agents end. Otherwise a run could wait for ever for rollouts whose
// results the database in the folder does not take any more.
func (r *localRun) watchFolder(ctx context.Context, abort context.CancelCauseFunc) (stop func()) {
	const interval = 5 * time.Second
	return background.Start(context.WithoutCancel(ctx), func(ctx context.Context) {
		for backoff.Sleep(ctx, interval) == nil {
			if r.folder.Gone() {
				abort(r.errGone())
				return
			}
		}
	})
}

func (r *localRun) errGone() error {
	return agl.Errorf(agl.CodeNotFound, "output: the folder %s was moved or deleted while the run was under way, so its record and its report are not written", r.folder.Path)
}

func (r *localRun) displayOptions() display.Options {
	o := display.Options{Out: r.cfg.Out, Began: r.folder.Opened, Log: r.cfg.Log}
	if r.learner.proxy != nil {
		o.Tokens = func() display.Tokens {
			u := r.folder.Usage(r.usage())
			return display.Tokens{Calls: u.Calls, Prompt: u.PromptTokens, Completion: u.CompletionTokens}
		}
	}
	return o
}

// usage is that of the model calls of this process.
func (r *localRun) usage() trainer.Usage {
	if r.learner == nil || r.learner.proxy == nil {
		return trainer.Usage{}
	}
	return r.learner.proxy.Usage()
}

// finish writes the result, however the run ended.
func (r *localRun) finish(ctx context.Context, failure error) (*Result, error) {
	r.folder.Spend(r.usage())
	if r.cfg.Resume && (r.learner == nil || !r.learner.began.Load()) {
		r.folder.KeepStore()
	}
	if errors.Is(failure, agl.ErrConflict) && !r.learned() {
		if reverted, err := r.folder.Revert(); reverted {
			return nil, err // the run is as it was, and this process did nothing of it
		}
	}
	switch {
	case failure == nil:
		r.folder.End(output.StateFinished, nil)
	case isInterrupt(failure):
		r.folder.End(output.StateInterrupted, failure)
	default:
		r.folder.End(output.StateFailed, failure)
		r.folder.Record.Useless = trainer.IsUseless(failure)
	}
	result := r.newResult()
	if r.learner != nil && r.learner.ended.Load() && r.learner.run != nil { // it may have been left running
		result.Result = r.learner.run.Result()
		result.Best = r.learner.best(result.Best)
	}
	result.Diverged = errors.Is(failure, tinker.ErrUseless)
	if r.failed != nil {
		result.Failures = r.failed()
	}
	if r.folder.Gone() {
		result.Gone, result.Resume = true, resumption(r.cfg, result.Program, "DIR")
		if failure == nil {
			return result, r.errGone()
		}
		return result, nil
	}
	report := runReport{cfg: r.cfg, result: result, warnings: r.notes.all()}
	return result, errors.Join(r.cfg.writeBest(r.folder, result.Best), report.write(ctx), r.folder.Save())
}

func (r *localRun) newResult() *Result {
	result := &Result{Record: r.folder.Record, Output: r.folder.Path, Report: r.folder.File(reportFile), Program: cmp.Or(r.cfg.Program, program)}
	result.Resume = resumption(r.cfg, result.Program, r.folder.Path)
	return result
}

// resumption says how to continue the run in a folder.
func resumption(cfg Config, program, folder string) string {
	if cfg.Agent != nil {
		return fmt.Sprintf("job.Resume(ctx, %q, agent)", folder)
	}
	command := program + " train --resume " + terminal.ShellWord(folder)
	if cfg.Role == execution.RoleAlgorithm && cfg.hasAgent() {
		command += " --role algorithm"
	}
	return command
}

// runRunners runs this process in the role runner.
func (c Config) runRunners(ctx context.Context) error {
	token, err := c.storeToken()
	if err != nil {
		return err
	}
	storeURL := c.storeURL()
	agent, closeAgent, err := c.newAgent(ctx, storeURL, token)
	if err != nil {
		return err
	}
	defer closeAgent()
	shown := display.New(c.Terminal, display.Options{Out: c.Out, Began: time.Now(), Log: c.Log})
	defer shown.Close()
	counted := &countedAgent{Agent: agent, notice: shown.Notice}
	runners := c.runnerConfig()
	runners.ProxyToken = token
	t, err := trainer.New(trainer.Config{
		Agent: counted, Runners: c.File.Agent.Concurrency, Runner: runners, Logger: c.Logger,
		Strategy: execution.ClientServer{
			Config:          execution.Config{Role: execution.RoleRunner, StoreURL: storeURL, ExternalStore: true, Token: token},
			TLS:             c.TLS,
			GracefulTimeout: c.drainTimeout(), Logger: c.Logger,
		},
	})
	if err != nil {
		return err
	}
	shown.Notice(fmt.Sprintf("store: %s, agents at the same time: %d", storeURL, max(c.File.Agent.Concurrency, 1)))
	err = t.Fit(ctx)
	counted.wait(runners.GracePeriod)
	err = c.explainToken(err)
	switch attempts := counted.total(); {
	case err != nil || ctx.Err() != nil:
	case attempts == 0:
		shown.Notice("no work: the store's queue is closed, because no run is under way there or it has just ended; start the run first")
	default:
		shown.Notice(fmt.Sprintf("the run has ended: this runner has made %d attempts", attempts))
	}
	return err
}

// recorded is a display that also keeps the record of the run up to date, in case the
// process is killed.
type recorded struct {
	display.Display

	run   *localRun
	mu    sync.Mutex // guards the record, and:
	saved time.Time
}

// saveInterval is how far the record may lag behind updates without a line.
const saveInterval = time.Second

func (d *recorded) Update(u display.Update) {
	d.Display.Update(u)
	d.mu.Lock()
	defer d.mu.Unlock()
	if u.Line == "" && time.Since(d.saved) < saveInterval {
		return
	}
	d.saved = time.Now()
	d.run.folder.Spend(d.run.usage())
	if err := d.run.folder.Save(); err != nil {
		d.run.cfg.Logger.Warn("the record of the run is out of date", "error", err)
	}
}

// notes are warnings for the report.
type notes struct {
	mu   sync.Mutex
	list []string
}

func (n *notes) add(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list = append(n.list, text)
}

func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.list)
}
