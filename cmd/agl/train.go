package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/job"
	"github.com/agl-go/agl/trainer/runfile"
)

type trainCommand struct {
	File    string     `arg:"" optional:"" placeholder:"CONFIG.yaml" help:"The run file: agent, data, algorithm and what else there is. Left out with --resume."`
	Role    string     `default:"" enum:",both,algorithm,runner" help:"What this process does: algorithm serves the store and trains, runner only runs agents on the rollouts of a store, both is all of it. Default: both, or what AGL_CURRENT_ROLE says."`
	Store   *flags.URL `placeholder:"URL" help:"The store server to use instead of what the file says. The role runner takes AGL_STORE_URL where neither is given."`
	Resume  string     `placeholder:"DIR" help:"Go on with the run in this output folder."`
	DryRun  bool       `help:"Do one rollout of the first task, show all that became of it, and train nothing."`
	Output  string     `placeholder:"DIR" help:"The output folder, instead of the one in the file."`
	Summary string     `placeholder:"FILE" help:"Write what came out there as JSON, too."`
	Seed    *uint64    `placeholder:"N" help:"The seed, instead of the one in the file."`

	flags.Log `set:"logLevel=warn"` // the progress shows what goes well
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

func (c *trainCommand) run(ctx context.Context, out *console.Console) (err error) {
	cfg, err := c.config(out)
	if err != nil {
		return err
	}
	if cfg.Reaper, err = process.NewReaper(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cfg.Reaper.Close()) }()
	if c.DryRun {
		return tryRun(ctx, out, cfg)
	}
	result, err := job.Run(ctx, cfg)
	if result == nil {
		return err
	}
	return errors.Join(err, c.conclude(out, result))
}

// config reads the run file and the flags beside it.
func (c *trainCommand) config(out *console.Console) (job.Config, error) {
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
		Environ: os.Environ(), LookupEnv: os.LookupEnv, Listening: out.Listening,
		Out: out.Out, Terminal: console.IsTerminal(out.Out),
	}
	logs := out.Err
	if console.IsTerminal(out.Out) && console.IsTerminal(out.Err) {
		cfg.Log = display.NewLog(out.Err)
		logs = cfg.Log
	}
	cfg.Logger = c.Logger(logs)
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
func (c *trainCommand) conclude(out *console.Console, result *job.Result) error {
	if c.Summary != "" {
		if err := result.WriteSummary(c.Summary); err != nil {
			return err
		}
	}
	if err := result.Print(out.Out, console.IsTerminal(out.Out)); err != nil {
		return fmt.Errorf("write to standard output: %w", err)
	}
	return nil
}

// tryRun does one rollout and shows what became of it.
func tryRun(ctx context.Context, out *console.Console, cfg job.Config) error {
	trial, err := job.Try(ctx, cfg)
	if err != nil {
		return err
	}
	if err := printTrace(out, &trial.Rollout, trial.Attempts, trial.Spans); err != nil {
		return err
	}
	if err := out.Styled(func(w io.Writer) error { return printTrial(w, trial) }); err != nil {
		return err
	}
	return failure(trial)
}

// printTrial lists the model calls as an algorithm sees them, the reward and the
// cost.
func printTrial(w io.Writer, trial *job.Trial) error {
	if err := printTriplets(w, trial); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s %s\n%s %s\n", console.Strong.Render("reward"), rewardText(trial), console.Strong.Render("cost  "), costText(trial))
	if err == nil && trial.Untrained {
		_, err = fmt.Fprintln(w, console.Faint.Render("The model of this trial had not learned anything: no warm start was made."))
	}
	return err
}

// failure is why the agent did not do its task.
func failure(trial *job.Trial) error {
	if trial.Outcome.Kind == agl.OutcomeOK {
		return nil
	}
	text := fmt.Sprintf("the agent did not do its task: %s", trial.Outcome.Kind)
	if trial.Outcome.Message != "" {
		text += ": " + trial.Outcome.Message
	}
	if end := lastLines(trial.Stderr); end != "" && !strings.Contains(trial.Outcome.Message, end) {
		text += "\nits standard error ends with:\n" + end
	}
	return fmt.Errorf("%s", text)
}

// lastLines is the end of an output.
func lastLines(text string) string {
	const lines = 20
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func printTriplets(w io.Writer, trial *job.Trial) error {
	if trial.TripletsError != nil {
		_, err := fmt.Fprintf(w, "\n%s\n", console.Bad.Render("the spans cannot be read as model calls: "+trial.TripletsError.Error()))
		return err
	}
	if len(trial.Triplets) == 0 {
		_, err := fmt.Fprintf(w, "\n%s none: no model call was recorded\n", console.Strong.Render("triplets"))
		return err
	}
	for i := range trial.Triplets {
		t := &trial.Triplets[i]
		reward := "no reward"
		if t.Reward.Valid {
			reward = fmt.Sprintf("reward %g", t.Reward.V)
		}
		lines := []string{"", fmt.Sprintf("%s  %s, %s", console.Strong.Render(fmt.Sprintf("triplet %d", i+1)), tokenCounts(t), console.Good.Render(reward))}
		for _, line := range append(lines, conversationLines(trial.Spans, t.Call.SpanID)...) {
			if _, err := fmt.Fprintln(w, line); err != nil {
				return err
			}
		}
	}
	return nil
}

// tokenCounts says whether a call can be trained on.
func tokenCounts(t *adapter.Triplet) string {
	if len(t.Prompt.TokenIDs) == 0 && len(t.Response.TokenIDs) == 0 {
		return "no token ids"
	}
	text := fmt.Sprintf("%d prompt and %d response token ids", len(t.Prompt.TokenIDs), len(t.Response.TokenIDs))
	if len(t.Call.Logprobs) == 0 {
		text += " without log-probabilities"
	}
	return text
}

// conversationLines is the conversation of a model call, a message a line.
func conversationLines(spans []agl.Span, spanID string) []string {
	var lines []string
	for i := range spans {
		if spans[i].SpanID != spanID {
			continue
		}
		for _, prefix := range []string{agl.AttrGenAIPrompt, agl.AttrGenAICompletion} {
			for n := range math.MaxInt {
				role, ok := spans[i].Attributes.GetString(fmt.Sprintf("%s.%d.role", prefix, n))
				if !ok {
					break
				}
				content, _ := spans[i].Attributes.GetString(fmt.Sprintf("%s.%d.content", prefix, n))
				lines = append(lines, console.Faint.Render(fmt.Sprintf("  %-9s ", console.Printable(role)))+console.Printable(content))
			}
		}
	}
	return lines
}

func rewardText(trial *job.Trial) string {
	switch {
	case trial.Reward.Valid:
		return fmt.Sprintf("%g", trial.Reward.V)
	case trial.Mask != "":
		return fmt.Sprintf("none (%s)", trial.Mask)
	default:
		return "none"
	}
}

func costText(trial *job.Trial) string {
	text := trial.Took.Round(time.Millisecond).String()
	if u := trial.Usage; u.Calls > 0 {
		text += fmt.Sprintf(", %d model calls, %d prompt and %d completion tokens", u.Calls, u.PromptTokens, u.CompletionTokens)
	}
	return text
}
