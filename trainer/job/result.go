package job

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/internal/terminal"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/output"
)

// Result is the result of a run.
type Result struct {
	output.Record
	// Result is that of the algorithm; zero if it did not run in this process.
	algorithms.Result
	// Output is the folder; Report the path of its report.
	Output string
	Report string
	// Program is what a person types to run agl.
	Program string
	// Resume says how to continue a run that is not finished: a command, or a call.
	Resume string
	// Gone says that Output was moved or deleted while the run was under way. Resume then names DIR in its place.
	Gone bool
	// Diverged says that the weights have become useless, which a resumption would repeat.
	Diverged bool
	// Failures are the rollouts of this process that failed, by reason.
	Failures []trainer.Failure
}

// summary is the result for programs.
type summary struct {
	output.Record

	Output string         `json:"output"`
	Report string         `json:"report"`
	Own    jsontext.Value `json:",embed"`
}

// WriteSummary writes the result as a JSON object.
func (r *Result) WriteSummary(path string) error {
	s := summary{Record: r.Record, Output: r.Output, Report: r.Report}
	var err error
	if r.Summary != nil {
		s.Own, err = json.Marshal(r.Summary, json.Deterministic(true))
	}
	if err == nil {
		err = durable.WriteJSON(path, s, jsontext.WithIndent("  "))
	}
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return nil
}

// Reports in the folder of a run: the second is one page that needs no other file.
const (
	reportFile = "report.md"
	htmlFile   = "report.html"
)

// program is the name under which agl is installed, except by its wheel.
const program = "agl"

// shownFailures is the number of reasons that are listed on a terminal.
const shownFailures = 3

// Print describes the result for a person and says what to do next. On a terminal it
// draws a chart.
func (r *Result) Print(w io.Writer, terminal bool) error {
	var b strings.Builder
	if terminal && r.Chart != "" {
		fmt.Fprintf(&b, "\n%s\n", r.Chart)
	}
	b.WriteString(r.Text)
	if r.Usage.Calls > 0 {
		fmt.Fprintf(&b, "model calls: %s\n", display.Tokens{Calls: r.Usage.Calls, Prompt: r.Usage.PromptTokens, Completion: r.Usage.CompletionTokens})
	}
	for i, f := range r.Failures {
		if i == shownFailures {
			fmt.Fprintf(&b, "  and %d other reasons, see the report\n", len(r.Failures)-i)
			break
		}
		if i == 0 {
			b.WriteString("failed rollouts:\n")
		}
		fmt.Fprintf(&b, "  %s\n", f)
	}
	switch {
	case r.Gone:
		fmt.Fprintf(&b, "\nthe folder %s is gone: it was moved or deleted while the run was under way\nif it was moved, resume with its new path:   %s\n", r.Output, r.Resume)
	case r.State == output.StateFinished:
		fmt.Fprintf(&b, "\nreport: %s, and as a page %s\n", r.Report, htmlFile)
		if r.hasStore() {
			fmt.Fprintf(&b, "look at:  %[1]s rollouts %[2]s --sort reward\n          %[1]s trace worst %[2]s\n", r.Program, r.folder())
		}
		if _, err := trainedWeights(r.Output); err == nil {
			fmt.Fprintf(&b, "use it:   %s serve %s\n", r.Program, r.folder())
		}
	default:
		b.WriteString("\n")
		if _, err := os.Stat(r.Report); err == nil { // it could be written
			fmt.Fprintf(&b, "report so far: %s\n", r.Report)
		}
		if r.Diverged {
			b.WriteString("resuming would take the same learning rate and end in the same way\n")
			break
		}
		fmt.Fprintf(&b, "resume with:   %s\n", r.Resume)
		switch {
		case r.Useless:
			b.WriteString("which begins anew; a corrected run file may follow the folder\n")
		case r.Repeats != "":
			fmt.Fprintf(&b, "which %s\n", r.Repeats)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// folder is the output folder as a shell reads it.
func (r *Result) folder() string { return terminal.ShellWord(r.Output) }

// hasStore reports whether the store of the run is in its folder.
func (r *Result) hasStore() bool {
	_, err := os.Stat(filepath.Join(r.Output, keys.DatabaseFile))
	return err == nil
}
