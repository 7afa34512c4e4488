// Package algorithms is the registry of the algorithms that a run file can name.
//
// A [Kind] declares the name and the keys of an algorithm. A run file that names it
// has an [Algorithm]: the settings, what the run must provide, and how it is built
// from the [Parts] of the run. A [Run] then learns, and reports a [Result].
//
// Each algorithm has one file here, which has all of this but its name and its description: [All] lists these. A
// new algorithm needs such a file and a line in All. The packages that read run
// files, run them, show them and report on them need nothing else, and must not know
// any algorithm by name.
package algorithms

import (
	"context"
	"crypto/tls"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/plot"
)

// All returns the algorithms of agl, in the order of the documentation.
func All() []Kind {
	return []Kind{
		{Name: "grpo", Keys: grpoKeys, Doc: "Reinforcement learning of the engine's weights: rollouts with a higher reward than the rest of their group become more likely."},
		{Name: "online", Keys: onlineKeys, Doc: "Reinforcement learning of the engine's weights from rollouts that others start, such as the sessions of a live service (`proxy.sessions`), for as long as it runs."},
		{Name: "sft", Keys: sftKeys, Doc: "Supervised training of the engine's weights on rollouts: those of another run, or the best of the model's own."},
		{Name: "apo", Keys: apoKeys, Doc: "Prompt optimization: a model critiques and rewrites the prompts; those that are best on the validation tasks survive."},
		{Name: "baseline", Keys: baselineKeys, Doc: "Learns nothing: runs every task and reports."},
		{Name: "command", Keys: commandKeys, Doc: "A program that learns, in any language: the program and its arguments."},
	}
}

// Kind is an algorithm that a run file can name.
type Kind struct {
	// Name is the key of the algorithm in a run file.
	Name string
	// Doc describes it in a sentence.
	Doc string
	// Keys declares the settings, which are read into the algorithm. dir is the folder
	// where relative paths start.
	Keys func(dir string) (yamlfile.Value, Algorithm)
}

// Algorithm is an algorithm with its settings.
type Algorithm interface {
	// Name is that of its [Kind].
	Name() string
	// Describe names the main setting, such as "100 steps"; empty if there is none.
	Describe() string
	// Needs says what the rest of the file must provide.
	Needs() Needs
	// New builds the algorithm for one run.
	New(p Parts) (Run, error)
	// Curves reads the metrics in the folder of a run. With an error it returns what
	// could be read.
	Curves(outDir string) ([]Curve, error)
}

// Needs is what an algorithm needs of a run file.
type Needs struct {
	// Losses are the losses that the run's engine must support. Without losses, no
	// weights are trained and no engine is required.
	Losses []tinker.LossName
	// Calls is true if the algorithm learns from recorded model calls.
	Calls bool
	// Prompts is true if there must be prompt templates to tune.
	Prompts bool
	// Validation is true if there must be validation tasks.
	Validation bool
	// NoTasks is true if the algorithm learns from what others run: the run then needs
	// neither tasks nor an agent.
	NoTasks bool
	// Demonstrations is a file of conversations that the algorithm reads once it runs; empty is none.
	Demonstrations string
	// Sessions is true if the proxy must record the sessions of users.
	Sessions bool
	// Divergence is true if the releases of the algorithm have the guard kl, which the run measures and the store decides by.
	Divergence bool
	// OwnModel is true if the algorithm may register the model that agents call at the
	// run's proxy, once it runs.
	OwnModel bool
	// Roles is true if the algorithm can train several agents of a rollout, see Parts.
	Roles bool
	// Models are called by the algorithm itself.
	Models []Model
}

// Model is a language model that an algorithm calls.
type Model struct {
	// Key is its path in the run file, such as algorithm.apo.edit_model.
	Key string
	// Name is the model to request.
	Name string
	// BaseURL is that of an OpenAI-compatible API; empty means the run's proxy.
	BaseURL string
	// APIKey may be env:NAME.
	APIKey string
}

// Parts are what a run provides to its algorithm.
type Parts struct {
	// RunConfig has everything but Progress.
	RunConfig algorithm.RunConfig
	// Training has the engine, the model, its initial weights, the publisher and the
	// sampling parameters of validation; zero without an engine.
	Training algorithm.TrainingConfig
	// Demonstrations reads a file of conversations as training data; nil without an engine.
	Demonstrations func(ctx context.Context, path string) ([]tinker.Datum, error)
	// Releaser makes a releaser of the weights of the run, whose releases are as the proposal says; nil without an engine.
	Releaser func(store agl.Store, p release.Proposal) algorithm.Releaser
	// PromptReleaser makes a releaser of prompts in the store of the run, whose releases are as the proposal says.
	PromptReleaser func(p release.Proposal) apo.Releaser
	// Roles are the agents in training if the run file has several.
	Roles []algorithm.Role
	// Proxied is true if agents call models through the run's proxy, which records
	// token ids.
	Proxied bool
	// Resolve returns a model with the URL of the run's proxy, if it has none, and
	// with its secret.
	Resolve func(m Model) (Model, error)
	// TLS says whom clients of models and stores trust; nil trusts the CAs of the system.
	TLS *tls.Config
	// LookupEnv resolves secrets of the form env:NAME.
	LookupEnv func(name string) (value string, ok bool)
	// Environ is the environment of programs that the algorithm starts, and StoreToken the
	// token of the store that they reach.
	Environ    []string
	StoreToken string
	// Reaper ends what these programs leave behind; nil ends only their process groups.
	Reaper *process.Reaper
	// Display shows the run.
	Display display.Display
	// Warn adds a warning to the report of the run.
	Warn func(text string)
}

// Run is an algorithm that is ready to run.
type Run interface {
	agl.Algorithm
	// Result returns the result of Run, even if Run has failed or was not called. It
	// must not be called during Run.
	Result() Result
}

// Result is the result of a run.
type Result struct {
	// Summary is a struct whose members are added to the summary for programs.
	Summary any
	// Facts are rows of the table at the head of the report.
	Facts []Fact
	// Report is the section of the report that describes the result, in Markdown.
	Report string
	// HTML is a further section of the report as a page; empty if there is none.
	HTML string
	// Text describes the result on a terminal.
	Text string
	// Chart is a curve for a terminal, with a title; empty if there is none.
	Chart string
	// Repeats says what a resumption of the run would repeat, as a sentence without a
	// subject; empty if that is not known.
	Repeats string
	// Best is the best resources found; nil if the algorithm does not look for any.
	Best *Best
	// Compared are the ids of the first resources and of the best, if a run tries several side by side; otherwise empty, and then
	// the last rollouts used the best.
	Compared [2]string
}

// Fact is a row of a table.
type Fact struct{ Name, Value string }

// Best is the best resources that a run has found.
type Best struct {
	// Weights is the engine's path of the last checkpoint; empty if nothing trains
	// weights, and before the first checkpoint.
	Weights string
	// Agents are the weights of further agents, each with a model of its own, by name.
	Agents map[string]string
	// Prompts replace the prompts of the run file; nil keeps them.
	Prompts agl.Resources
	// Improved is true if Prompts are better than those of the run file, or if the
	// weights earn more on the validation tasks than the first ones; null if that is
	// not known.
	Improved agl.Null[bool]
}

// Curve is a chart of the report.
type Curve struct {
	// Name is that of its file, without the extension.
	Name string
	plot.Chart
}
