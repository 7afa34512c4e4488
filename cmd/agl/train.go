package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/job"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

type trainCommand struct {
	File      string     `arg:"" optional:"" placeholder:"CONFIG.yaml" help:"The run file, which names the agent, the data and the algorithm. Default: agl.yaml, if there is one. With --resume, a corrected run file; default: the one in the folder."`
	Role      string     `default:"" enum:",both,algorithm,runner" help:"What this process does: algorithm serves the store and trains, runner only runs agents on the rollouts of a store, both does all of it. Default: both, or what AGL_CURRENT_ROLE says."`
	Store     *flags.URL `placeholder:"URL" help:"The store server to use instead of the file's. The role runner uses AGL_STORE_URL if neither is given."`
	TokenFile string     `type:"home" env:"AGL_TOKEN_FILE" placeholder:"FILE" help:"In place of AGL_TOKEN: a file with the store's token, which is read once, at the start."`
	Resume    string     `type:"home" placeholder:"DIR" help:"Continue the run in this output folder."`
	DryRun    bool       `help:"Run one rollout of the first task, show its trace and its reward, and train nothing."`
	From      string     `type:"home" placeholder:"DIR" help:"With --dry-run: use the weights that the run in this folder has trained."`
	Output    string     `type:"home" placeholder:"DIR" help:"The output folder, instead of the one in the file."`
	Overwrite bool       `help:"Replace the run in the output folder. Default: a folder with a number, such as runs/agl-2."`
	Summary   string     `type:"home" placeholder:"FILE" help:"Also write the result to this file, as JSON."`
	Seed      *uint64    `placeholder:"N" help:"The seed, instead of the one in the file."`

	openFlag
	flags.Trust
	flags.Log `set:"logLevel=warn"` // the progress display says the rest

	kept []byte // the run file of the run that a corrected one continues; nil without a corrected one
}

// defaultFile is the run file of a command line that names none.
const defaultFile = "agl.yaml"

func (c *trainCommand) Validate() error {
	if c.File == "" && c.Resume == "" {
		if _, err := os.Stat(defaultFile); err != nil {
			return errors.New("give a run file, or --resume DIR: there is no " + defaultFile + " here, which " + programName() + " init would write")
		}
		c.File = defaultFile
	}
	switch {
	case c.Resume != "" && (c.Output != "" || c.Seed != nil):
		return errors.New("--resume keeps the run's output folder and seed; give neither --output nor --seed")
	case c.Resume != "" && c.Overwrite:
		return errors.New("--resume continues the run in the folder; give no --overwrite")
	case c.From != "" && !c.DryRun:
		return errors.New("--from is for --dry-run; a run starts from other weights with engine.tinker.weights, and continues with --resume")
	case c.Resume != "" && c.DryRun:
		return errors.New("--dry-run needs a run file; give one instead of --resume")
	case c.Summary != "" && c.DryRun:
		return errors.New("--summary is the result of a run, which --dry-run has not; give one of them")
	case c.Store != nil && c.DryRun:
		return errors.New("--store keeps a run, and --dry-run keeps nothing; give one of them")
	case c.Role != "" && c.Role != string(execution.RoleBoth) && c.DryRun:
		return fmt.Errorf("--role=%s is a part of a run, and --dry-run runs one rollout in this process; give one of them", c.Role)
	}
	if c.Summary != "" {
		// Refuse a wrong path now rather than at the end of the run.
		probe, err := os.CreateTemp(filepath.Dir(c.Summary), filepath.Base(c.Summary)+durable.Unfinished)
		if err == nil {
			err = errors.Join(probe.Close(), os.Remove(probe.Name()))
		}
		if info, statErr := os.Stat(c.Summary); statErr == nil && info.IsDir() {
			err = errors.New("it is a folder")
		}
		if err != nil {
			return fmt.Errorf("--summary=%s: must be a file in a folder that exists and can be written to: %w", c.Summary, err)
		}
	}
	return nil
}

func (c *trainCommand) run(ctx context.Context, out *console.Console) (err error) {
	// A reader of the output that is gone fails writes, as a full disk does, and does not end the run. Agents do not inherit this, as they would with Ignore.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
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
	if err := c.showChanges(out, source.Text); err != nil {
		return job.Config{}, err
	}
	settings, err := c.TLS()
	if err != nil {
		return job.Config{}, err
	}
	file.Agent.Process.Env = append(c.AgentEnv(), file.Agent.Process.Env...)
	cfg := job.Config{
		TLS: settings, File: file, Source: source, Resume: c.Resume != "", Overwrite: c.Overwrite, Numbered: c.Output == "", Role: role, Program: commandName(), Version: version(),
		Environ: os.Environ(), Listening: c.listening(out).Listening, From: c.From,
		Out: out.Out, Terminal: console.CanRedraw(out.Out),
	}
	cfg.LookupEnv = os.LookupEnv
	if own := file.Store.Token; !c.DryRun && (own == "" || own == "env:"+execution.EnvToken) {
		if _, cfg.LookupEnv, err = storeToken(flags.Token(os.Getenv(execution.EnvToken)), c.TokenFile); err != nil {
			return job.Config{}, err
		}
	}
	logs := out.Err
	if cfg.Terminal && console.IsTerminal(out.Err) {
		cfg.Log = display.NewLog(out.Err)
		logs = cfg.Log
	}
	logger := c.Logger(logs)
	if cfg.Log != nil {
		flags.TakeLibraries(logger)
	}
	cfg.Logger = display.Once(logger) // the end of the run counts what failed
	switch given := os.Getenv(execution.EnvStoreURL); {
	case c.Store != nil:
		cfg.StoreURL = string(*c.Store)
	case role == execution.RoleRunner && file.Store.URL == "" && given != "":
		var url flags.URL
		if err := url.UnmarshalText([]byte(given)); err != nil {
			return job.Config{}, agl.Errorf(agl.CodeInvalid, "%s: %w", execution.EnvStoreURL, err)
		}
		cfg.StoreURL = string(url)
	}
	return cfg, nil
}

// storeToken returns the store's token, read from the file if there is one, and a LookupEnv in which AGL_TOKEN is that token.
func storeToken(token flags.Token, file string) (string, func(name string) (string, bool), error) {
	to, err := (&flags.Store{Token: token, TokenFile: file}).Config()
	if err != nil || to.TokenFile == "" {
		return to.Token, os.LookupEnv, err
	}
	read, err := client.ReadTokenFile(to.TokenFile)
	return read, func(name string) (string, bool) {
		if name == execution.EnvToken {
			return read, true
		}
		return os.LookupEnv(name)
	}, err
}

// showChanges says what a corrected run file changes. Whether the run can continue
// with it is known by its algorithm, which refuses what its results depend on.
func (c *trainCommand) showChanges(out *console.Console, text []byte) error {
	if c.kept == nil {
		return nil
	}
	changes, err := yamlfile.Differences(c.kept, text)
	if err != nil {
		return fmt.Errorf("compare the run files: %w", err)
	}
	if len(changes) == 0 {
		return out.Summarize("the run file says what that of the run says")
	}
	return out.Summarize("the run continues with these changes, unless its results depend on one of them:\n  %s", strings.Join(changes, "\n  "))
}

// role returns the role of the flag or, without one, of the environment.
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

// read reads the run file, or that of the run to resume.
func (c *trainCommand) read(role execution.Role) (*runfile.File, output.Source, error) {
	source := output.Source{Path: c.File}
	if c.Resume != "" {
		_, kept, err := output.Read(c.Resume)
		if err != nil {
			return nil, source, fmt.Errorf("--resume: %w", err)
		}
		source.Seed = kept.Seed
		if c.File == "" {
			source = kept
		} else {
			c.kept = kept.Text
		}
	}
	if c.File != "" {
		text, err := runfile.ReadText(c.File)
		switch {
		case errors.Is(err, agl.ErrInvalid):
			return nil, source, fmt.Errorf("%w, or run %s train there", err, programName())
		case errors.Is(err, agl.ErrNotFound):
			return nil, source, fmt.Errorf("%w; %s init writes one", err, programName())
		case err != nil:
			return nil, source, err
		}
		source.Text = text
		if c.Seed != nil {
			source.Seed = agl.Some(*c.Seed)
		}
	}
	options := runfile.Options{Output: cmp.Or(c.Resume, c.Output)}
	switch role {
	case execution.RoleAlgorithm:
		options.Elsewhere = []runfile.Part{runfile.PartAgent}
	case execution.RoleRunner:
		options.Elsewhere = []runfile.Part{runfile.PartAlgorithm}
	case execution.RoleBoth:
	}
	file, err := runfile.Parse(source.Path, source.Text, filepath.Dir(source.Path), options)
	if err != nil {
		return nil, source, err
	}
	if source.Seed.Valid {
		if file.Data.Seed == file.Seed {
			file.Data.Seed = source.Seed.V
		}
		file.Seed = source.Seed.V
	}
	return file, source, nil
}

// conclude writes the result.
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

// tryRun runs one rollout and shows its trace and its triplets.
func tryRun(ctx context.Context, out *console.Console, cfg job.Config) error {
	trial, err := job.DryRun(ctx, cfg)
	if err != nil {
		return err
	}
	if err := printTrace(out, &trial.Rollout, trial.Attempts, trial.Spans, nil); err != nil {
		return err
	}
	if err := out.Styled(func(w io.Writer) error { return printTrial(w, trial) }); err != nil {
		return err
	}
	return failure(trial)
}

// printTrial lists the model calls as an algorithm sees them, the reward and the cost.
func printTrial(w io.Writer, trial *job.DryRunResult) error {
	text := tripletsText(trial) + fmt.Sprintf("\n%s %s\n%s %s\n", console.Strong.Render("reward"), rewardText(trial), console.Strong.Render("cost  "), costText(trial))
	if trial.Untrained {
		text += console.Faint.Render("The model of this trial had not learned anything: no warm start was made.") + "\n"
	}
	_, err := io.WriteString(w, text)
	return err
}

// failure returns why an algorithm could not learn from the rollout; nil if it could.
func failure(trial *job.DryRunResult) error {
	switch {
	case trial.Outcome.Kind != agl.OutcomeOK:
		text := fmt.Sprintf("the agent did not do its task: %s", trial.Outcome.Kind)
		if trial.Outcome.Message != "" {
			text += ": " + trial.Outcome.Message
		}
		if trial.Outcome.Kind == agl.OutcomeTimeout {
			text += "\n" + trainer.TimeForm
		}
		if end := lastLines(trial.Stderr); end != "" && !strings.Contains(trial.Outcome.Message, end) {
			text += "\nits standard error ends with:\n" + end
		}
		return fmt.Errorf("%s", text)
	case !trial.Reward.Valid:
		seen, hint := "it printed nothing to standard output", "\n"+trainer.TaskForm
		switch {
		case trial.Misplaced != "":
			seen, hint = trainer.Misplaced(trial.Misplaced), ""
		case trial.LastOutput != "":
			seen, hint = fmt.Sprintf("the last line that it printed: %.200q", trial.LastOutput), ""
		}
		return fmt.Errorf("the agent ended well without a usable reward (%s)\n%s\nhow to report a reward: %s%s", trial.Mask, seen, trainer.RewardForm, hint)
	case trial.NeedsCalls && trial.TripletsError == nil && len(trial.Triplets) == 0:
		return fmt.Errorf("no model call was recorded, and the algorithm learns from the calls: %s", trainer.CallForm)
	}
	return nil
}

// lastLines returns the end of an output.
func lastLines(text string) string {
	const lines = 20
	all := strings.Split(strings.TrimRight(text, "\n"), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

func tripletsText(trial *job.DryRunResult) string {
	if trial.TripletsError != nil {
		return "\n" + console.Bad.Render("the spans cannot be read as model calls: "+console.Printable(trial.TripletsError.Error())) + "\n"
	}
	if len(trial.Triplets) == 0 {
		why := "no model call was recorded"
		if trial.Usage.Calls > 0 {
			why = "no token ids were recorded, which only training weights needs"
		}
		return "\n" + console.Strong.Render("triplets") + " none: " + why + "\n"
	}
	var b strings.Builder
	for i := range trial.Triplets {
		t := &trial.Triplets[i]
		reward := "no reward"
		if t.Reward.Valid {
			reward = fmt.Sprintf("reward %g", t.Reward.V)
		}
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "%s  %s, %s\n", console.Strong.Render(fmt.Sprintf("triplet %d", i+1)), tokenCounts(t), console.Good.Render(reward))
	}
	return b.String()
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

func rewardText(trial *job.DryRunResult) string {
	switch {
	case trial.Reward.Valid:
		return fmt.Sprintf("%g", trial.Reward.V)
	case trial.Mask != "":
		return fmt.Sprintf("none (%s)", trial.Mask)
	default:
		return "none"
	}
}

func costText(trial *job.DryRunResult) string {
	text := trial.Took.Round(time.Millisecond).String()
	if u := trial.Usage; u.Calls > 0 {
		text += fmt.Sprintf(", %s, %d prompt and %s", display.Plural(u.Calls, "model call"), u.PromptTokens, display.Plural(u.CompletionTokens, "completion token"))
	}
	return text
}
