package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/job"
	"github.com/agl-go/agl/trainer/runfile"
)

type trainCommand struct {
	File    string    `arg:"" optional:"" placeholder:"CONFIG.yaml" help:"The run file: agent, data, algorithm and what else there is. Left out with --resume."`
	Role    string    `default:"" enum:",both,algorithm,runner" help:"What this process does: algorithm serves the store and trains, runner only runs agents on the rollouts of a store, both is all of it. Default: both, or what AGL_CURRENT_ROLE says."`
	Store   *storeURL `placeholder:"URL" help:"The store server to use instead of what the file says. The role runner takes AGL_STORE_URL where neither is given."`
	Resume  string    `placeholder:"DIR" help:"Go on with the run in this output folder."`
	DryRun  bool      `help:"Do one rollout of the first task, show all that became of it, and train nothing."`
	Output  string    `placeholder:"DIR" help:"The output folder, instead of the one in the file."`
	Summary string    `placeholder:"FILE" help:"Write what came out there as JSON, too."`
	Seed    *uint64   `placeholder:"N" help:"The seed, instead of the one in the file."`
	trainLogFlags
}

// trainLogFlags are logFlags for a command with a person before it: what goes
// well is shown by the progress.
type trainLogFlags struct {
	LogLevel  logLevel `default:"warn" help:"Log from this level on: debug, info, warn or error."`
	LogFormat string   `default:"text" enum:"text,json"     help:"How log lines are written, to standard error: text or json."`
}

// Help is shown below the flags.
func (trainCommand) Help() string {
	return "Everything of a run is in its output folder: the run file as it was run, metrics.jsonl, checkpoints, the best prompts or weights, the store, " +
		"and report.md with curves. The first Ctrl-C stops the run and keeps what it has, a second one ends it at once; --resume goes on.\n\n" +
		"Examples:\n  agl train agl.yaml --dry-run\n  agl train agl.yaml\n  agl train --resume runs/agl\n  agl train agl.yaml --role runner --store http://trainer:4747"
}

// Validate is called by kong.
func (c *trainCommand) Validate() error {
	switch {
	case c.File == "" && c.Resume == "":
		return errors.New("give a run file, or --resume DIR")
	case c.File != "" && c.Resume != "":
		return errors.New("--resume goes on with the run file in the folder; give no other")
	case c.Resume != "" && (c.Output != "" || c.Seed != nil):
		return errors.New("--resume goes on with the output folder and the seed that the run has; give neither --output nor --seed")
	case c.Resume != "" && c.DryRun:
		return errors.New("--dry-run tries a run file; give one instead of --resume")
	}
	if c.Summary != "" {
		// Found out at the end, it would cost the run.
		if dir, err := os.Stat(filepath.Dir(c.Summary)); err != nil || !dir.IsDir() {
			return fmt.Errorf("--summary=%s: must be a file in a folder that exists", c.Summary)
		}
	}
	return nil
}

func (c *trainCommand) run(ctx context.Context, m *Main) (err error) {
	cfg, err := c.config(m)
	if err != nil {
		return err
	}
	reaper, err := process.NewReaper()
	switch {
	case err == nil:
		defer func() { err = errors.Join(err, reaper.Close()) }()
		cfg.Reaper = reaper
	case !errors.Is(err, agl.ErrUnimplemented):
		return err
	}
	if c.DryRun {
		return c.try(ctx, m, cfg)
	}
	result, err := job.Run(ctx, cfg)
	if result == nil {
		return err
	}
	return errors.Join(err, c.conclude(m, result))
}

// config reads the run file and the flags beside it.
func (c *trainCommand) config(m *Main) (job.Config, error) {
	role, err := c.role(os.Getenv)
	if err != nil {
		return job.Config{}, err
	}
	file, source, err := c.read(role)
	if err != nil {
		return job.Config{}, err
	}
	cfg := job.Config{
		File: file, Source: source, Resume: c.Resume != "", Role: role, Version: version(),
		Environ: os.Environ(), LookupEnv: os.LookupEnv, Listening: m.Listening,
		Out: m.Stdout, Terminal: isTerminal(m.Stdout),
	}
	flags, logs := logFlags{LogLevel: c.LogLevel, LogFormat: c.LogFormat}, m.Stderr
	if isTerminal(m.Stdout) && isTerminal(m.Stderr) {
		cfg.Log = display.NewLog(m.Stderr)
		logs = cfg.Log
	}
	cfg.Logger = flags.logger(logs)
	switch url := os.Getenv(execution.EnvStoreURL); {
	case c.Store != nil:
		cfg.StoreURL = string(*c.Store)
	case role == execution.RoleRunner && file.Store.URL == "":
		cfg.StoreURL = url
	}
	return cfg, nil
}

// role is the flag's, or the environment's.
func (c *trainCommand) role(getenv func(string) string) (execution.Role, error) {
	if c.Role != "" {
		return execution.Role(c.Role), nil
	}
	env, err := execution.ConfigFromEnv(getenv)
	if err != nil {
		return "", err
	}
	return env.Role, nil
}

// read reads the run file, or the one of the run that goes on.
func (c *trainCommand) read(role execution.Role) (*runfile.File, job.Source, error) {
	source := job.Source{Path: c.File}
	if c.Resume != "" {
		_, kept, err := job.Open(c.Resume)
		if err != nil {
			return nil, source, fmt.Errorf("--resume: %w", err)
		}
		source = kept
	} else {
		text, err := os.ReadFile(c.File)
		if err != nil {
			return nil, source, fmt.Errorf("read the run file: %w", err)
		}
		source.Text = text
		if c.Seed != nil {
			source.Seed = agl.Some(*c.Seed)
		}
	}
	var elsewhere []runfile.Part
	switch role {
	case execution.RoleAlgorithm:
		elsewhere = []runfile.Part{runfile.PartAgent}
	case execution.RoleRunner:
		elsewhere = []runfile.Part{runfile.PartAlgorithm}
	case execution.RoleBoth:
	}
	file, err := runfile.Parse(source.Path, source.Text, filepath.Dir(source.Path), elsewhere...)
	if err != nil {
		return nil, source, err
	}
	for _, folder := range []string{c.Output, c.Resume} {
		if folder == "" {
			continue
		}
		if file.Output, err = filepath.Abs(folder); err != nil {
			return nil, source, fmt.Errorf("the output folder: %w", err)
		}
	}
	if source.Seed.Valid {
		if file.Data.Seed == file.Seed {
			file.Data.Seed = source.Seed.V
		}
		file.Seed = source.Seed.V
	}
	return file, source, nil
}

// conclude tells what came out.
func (c *trainCommand) conclude(m *Main, result *job.Result) error {
	if c.Summary != "" {
		if err := result.WriteSummary(c.Summary); err != nil {
			return err
		}
	}
	return errOutput(result.Print(m.Stdout, isTerminal(m.Stdout)))
}
