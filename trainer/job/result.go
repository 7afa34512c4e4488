package job

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/internal/terminal"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
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
		err = writeJSON(path, s, jsontext.WithIndent("  "))
	}
	if err != nil {
		return fmt.Errorf("write the summary: %w", err)
	}
	return nil
}

func writeJSON(path string, value any, options ...json.Options) error {
	data, err := json.Marshal(value, append(options, json.Deterministic(true))...)
	if err != nil {
		return err
	}
	return algorithm.WriteFileAtomic(path, append(data, '\n'))
}

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
	if r.State == output.StateFinished {
		fmt.Fprintf(&b, "\nreport: %s, and as a page %s\n", r.Report, htmlFile)
		if r.hasStore() {
			fmt.Fprintf(&b, "look at:  %[1]s rollouts %[2]s --sort reward\n          %[1]s trace worst %[2]s\n", r.Program, r.folder())
		}
		if _, err := trainedWeights(r.Output); err == nil {
			fmt.Fprintf(&b, "use it:   %s serve %s\n", r.Program, r.folder())
		}
	} else {
		b.WriteString("\n")
		if _, err := os.Stat(r.Report); err == nil { // it could be written
			fmt.Fprintf(&b, "report so far: %s\n", r.Report)
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

// bestDir has the best resources of a run.
const (
	bestDir  = "best"
	bestFile = "best.json"
)

// best is the content of best/best.json.
type best struct {
	// Prompts are the prompt templates, in files beside this one.
	Prompts []bestPrompt `json:"prompts,omitzero"`
	// Weights is the engine's path of the last checkpoint. WeightsFile is the file in
	// which the embedded engine keeps it, relative to the output folder; Engine is the
	// URL of the remote engine that has it.
	Weights     string `json:"weights,omitzero"`
	WeightsFile string `json:"weights_file,omitzero"`
	Engine      string `json:"engine,omitzero"`
	// Improved is true if the prompts are better than those of the run file, or if the
	// weights earn more on the validation tasks than the first ones did; null if that
	// is not known.
	Improved agl.Null[bool] `json:"improved"`
}

// bestPrompt is a prompt template in a file.
type bestPrompt struct {
	Name   string           `json:"name"`
	File   string           `json:"file"`
	Engine agl.PromptEngine `json:"engine"`
}

// writeBest writes the best resources; nil writes nothing.
func (r *run) writeBest(found *algorithms.Best) (err error) {
	if found == nil {
		return nil
	}
	b := best{Weights: found.Weights, Improved: found.Improved}
	if e := r.cfg.File.Engine; e != nil && e.Tinker != nil && b.Weights != "" {
		b.Engine = e.Tinker.Client.URL
	} else {
		b.WeightsFile = r.weightsFile(found.Weights)
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the best resources: %w", err)
		}
	}()
	const dirMode = 0o755
	dir := r.folder.File(bestDir)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	prompts := agl.Resources(r.cfg.File.Prompts)
	if found.Prompts != nil {
		prompts = found.Prompts
	}
	for _, one := range prompts {
		template, ok := one.Resource.(agl.PromptTemplate)
		if !ok {
			continue
		}
		name := fileName(one.Name) + ".txt"
		b.Prompts = append(b.Prompts, bestPrompt{Name: one.Name, File: name, Engine: template.Engine})
		if err := algorithm.WriteFileAtomic(filepath.Join(dir, name), []byte(template.Template)); err != nil {
			return err
		}
	}
	return writeJSON(filepath.Join(dir, bestFile), b, jsontext.Multiline(true))
}

// weightsFile is the file in which the embedded engine keeps a checkpoint, relative
// to the output folder; empty if there is none.
func (r *run) weightsFile(weights string) string {
	path, err := tinker.ParsePath(weights)
	if err != nil {
		return ""
	}
	name := policy.WeightsFile(weightsDir, path)
	if _, err := os.Stat(r.folder.File(name)); err != nil {
		return ""
	}
	return name
}

// fileName turns the name of a resource into a file name.
func fileName(name string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, name)
	return strings.TrimLeft(clean, ".")
}
