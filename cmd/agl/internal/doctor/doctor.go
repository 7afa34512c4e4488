// Package doctor checks what a run needs, without running anything: the agent's program, the tasks, the engine, the models,
// the store with its database, the ports and the output folder. Every check adds findings. It must not know flags.
package doctor

import (
	"crypto/tls"
	"fmt"
	"io"
	"strings"
	"time"

	"charm.land/lipgloss/v2"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/internal/terminal"
)

// Finding is the result of a check.
type Finding struct {
	Check  string  `json:"check"`
	State  Verdict `json:"state"`
	Found  string  `json:"found"`
	Remedy string  `json:"remedy"` // what to do; empty if nothing needs to be done
}

// Verdict says whether a check passed.
type Verdict string

// The verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn"
	Fail Verdict = "FAIL"
)

// Config configures [New].
type Config struct {
	Timeout   time.Duration // for the answer of a store or a model
	Token     string        // the store's bearer token
	TLS       *tls.Config   // whom to trust; nil is the CAs of the system
	LookupEnv func(name string) (value string, found bool)
}

// Doctor collects findings. Each check adds some and stops when its ctx ends.
type Doctor struct {
	cfg      Config
	Findings []Finding
}

// New returns a Doctor without findings.
func New(cfg Config) *Doctor { return &Doctor{cfg: cfg} }

// Addf adds a finding.
func (d *Doctor) Addf(check string, state Verdict, remedy, format string, args ...any) {
	d.Findings = append(d.Findings, Finding{Check: check, State: state, Found: fmt.Sprintf(format, args...), Remedy: remedy})
}

// Count returns how many findings have a state.
func (d *Doctor) Count(state Verdict) int {
	n := 0
	for _, f := range d.Findings {
		if f.State == state {
			n++
		}
	}
	return n
}

// Print writes a line for each finding and, below it, one for its remedy.
func (d *Doctor) Print(w io.Writer) error {
	width := 0
	for _, f := range d.Findings {
		width = max(width, len(f.Check))
	}
	for _, f := range d.Findings {
		line := fmt.Sprintf("%s  %-*s  %s\n", f.State.styled(), width, f.Check, terminal.Safe(f.Found))
		if f.Remedy != "" {
			line += strings.Repeat(" ", len(Fail)+2+width+2) + "→ " + terminal.Safe(f.Remedy) + "\n"
		}
		if _, err := fmt.Fprint(w, line); err != nil {
			return err
		}
	}
	return nil
}

// styled is a verdict in its colour, as wide as the longest one.
func (v Verdict) styled() string {
	style := console.Bad.Bold(true)
	switch v {
	case OK:
		style = console.Good
	case Warn:
		style = lipgloss.NewStyle().Foreground(lipgloss.Yellow)
	case Fail:
	}
	return style.Width(len(Fail)).Render(string(v))
}

// secret adds a finding for a secret of the form env:NAME that the environment
// lacks, and returns whether the secret is there.
func (d *Doctor) secret(field, value string) bool {
	name, isEnv := strings.CutPrefix(value, "env:")
	if !isEnv || d.getenv(name) != "" {
		return true
	}
	d.Addf("secret", Fail, "set "+name, "%s is taken from the environment variable %s, which is not set", field, name)
	return false
}

func (d *Doctor) getenv(name string) string {
	value, _ := d.cfg.LookupEnv(name)
	return value
}
