package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"charm.land/lipgloss/v2"
	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/trainer/runfile"
)

type doctorCommand struct {
	File     string        `arg:"" optional:"" help:"A run file. Default: only the store, the ports and --model are looked at."`
	StoreURL storeURL      `name:"store" placeholder:"URL" help:"Base URL of the store. Default: where the file keeps the run; without a file AGL_STORE_URL, or http://localhost:4747."`
	Token    string        `env:"AGL_TOKEN" placeholder:"TOKEN" help:"The store's bearer token."`
	Model    []modelFlag   `sep:"none" placeholder:"NAME=URL" help:"One more model to try, and the base URL of its backend; repeat it for several."`
	APIKey   string        `name:"api-key" env:"AGL_PROXY_API_KEY" placeholder:"KEY" help:"Key sent to the backends of --model, or env:NAME."`
	TextOnly bool          `help:"Do not ask these backends for token ids and log-probabilities."`
	Timeout  time.Duration `default:"30s" help:"How long a store or a model may take to answer. Default: ${default}."`
	JSON     bool          `name:"json" help:"Print the result as one JSON object."`
}

// Help is shown below the flags.
func (doctorCommand) Help() string {
	return "Looks at what a run needs, without running anything: the file, its secrets, the agent's program, the tasks, the engine, the models, " +
		"the database, the store with its token, the ports and the output folder. Each model is asked for one token, which may cost a little; " +
		"the answer shows whether its backend gives the token ids and log-probabilities that grpo learns from. " +
		"The exit code is 1 when something would fail.\n\nExamples:\n  agl doctor\n  agl doctor agl.yaml\n  agl doctor --model qwen=http://localhost:8000/v1"
}

// Validate is called by kong.
func (c *doctorCommand) Validate() error {
	if c.Timeout <= 0 {
		return fmt.Errorf("--timeout=%s: must be longer than 0", c.Timeout)
	}
	return nil
}

// finding is the state of one thing.
type finding struct {
	Check  string  `json:"check"`
	State  verdict `json:"state"`
	Found  string  `json:"found"`
	Remedy string  `json:"remedy"` // what to do about it; empty when it is fine
}

// verdict is how good that is.
type verdict string

const (
	fine  verdict = "ok"
	warns verdict = "warn"
	fails verdict = "FAIL"
)

// verdictWidth is that of the longest.
const verdictWidth = len(fails)

// doctor gathers findings.
type doctor struct {
	timeout  time.Duration
	token    string
	findings []finding
}

func (d *doctor) addf(check string, state verdict, remedy, format string, args ...any) {
	d.findings = append(d.findings, finding{Check: check, State: state, Found: fmt.Sprintf(format, args...), Remedy: remedy})
}

func (c *doctorCommand) run(ctx context.Context, m *Main) error {
	d := &doctor{timeout: c.Timeout, token: c.Token}
	if c.File != "" {
		c.lookAtFile(ctx, d)
	}
	for _, f := range c.Model {
		d.model(ctx, "model "+f.name, proxy.Model{Name: f.name, BaseURL: f.url, APIKey: c.APIKey, TextOnly: c.TextOnly})
	}
	switch elsewhere := os.Getenv("AGL_STORE_URL"); {
	case c.StoreURL != "":
		d.store(ctx, string(c.StoreURL), c.Token)
	case c.File == "" && elsewhere != "":
		d.store(ctx, elsewhere, c.Token)
	case c.File == "":
		d.defaultStore(ctx)
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	show := d.show
	if c.JSON {
		show = d.showJSON
	}
	if err := show(m); err != nil {
		return err
	}
	if failed := d.count(fails); failed > 0 {
		return fmt.Errorf("%s failed", count(failed, "check"))
	}
	return nil
}

// lookAtFile looks at a run file and, if it has no mistakes, at what it names.
func (c *doctorCommand) lookAtFile(ctx context.Context, d *doctor) {
	file, err := runfile.Read(c.File)
	if wrong, ok := errors.AsType[*runfile.Error](err); ok {
		for line := range strings.SplitSeq(wrong.Error(), "\n") {
			d.addf("run file", fails, "", "%s", line)
		}
		return
	}
	if err != nil {
		d.addf("run file", fails, "name one that can be read; agl init makes one", "%v", err)
		return
	}
	d.addf("run file", fine, "", "%s: %s", c.File, describeRun(file))
	d.run(ctx, file, c.StoreURL == "")
}

func (d *doctor) count(state verdict) int {
	n := 0
	for _, f := range d.findings {
		if f.State == state {
			n++
		}
	}
	return n
}

// show prints a line for each finding, and one below for what is to be done.
func (d *doctor) show(m *Main) error {
	width := 0
	for _, f := range d.findings {
		width = max(width, len(f.Check))
	}
	out, flush := m.styled()
	for _, f := range d.findings {
		line := fmt.Sprintf("%s  %-*s  %s\n", f.State.styled(), width, f.Check, f.Found)
		if f.Remedy != "" {
			line += strings.Repeat(" ", verdictWidth+2+width+2) + "→ " + f.Remedy + "\n"
		}
		if _, err := fmt.Fprint(out, line); err != nil {
			return errOutput(err)
		}
	}
	return flush()
}

// styled is a verdict in its colour, as wide as any.
func (v verdict) styled() string {
	style := lipgloss.NewStyle().Width(verdictWidth)
	switch v {
	case fine:
		style = style.Foreground(lipgloss.Green)
	case warns:
		style = style.Foreground(lipgloss.Yellow)
	case fails:
		style = style.Foreground(lipgloss.Red).Bold(true)
	}
	return style.Render(string(v))
}

func (d *doctor) showJSON(m *Main) error {
	doc, err := json.Marshal(struct {
		Checks   []finding `json:"checks"`
		Failed   int       `json:"failed"`
		Warnings int       `json:"warnings"`
	}{d.findings, d.count(fails), d.count(warns)})
	if err != nil {
		return fmt.Errorf("findings as JSON: %w", err)
	}
	return m.printf("%s\n", doc)
}

// secret reports a secret that the environment lacks, and returns whether it is
// there. One that is not of the form env:NAME is.
func (d *doctor) secret(field, value string) bool {
	name, isEnv := strings.CutPrefix(value, "env:")
	if !isEnv || os.Getenv(name) != "" {
		return true
	}
	d.addf("secret", fails, "set "+name, "%s is taken from the environment variable %s, which is not set", field, name)
	return false
}
