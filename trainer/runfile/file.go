// Package runfile is the file that `agl train` runs: agent, data, resources,
// proxy, engine, algorithm, store and output folder in one YAML file. It knows
// the settings of the parts and nothing of how they are run.
package runfile

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/tinker/chat/pretrained"
	"github.com/agl-go/agl/tinker/client"
)

// File is what a run file says. What it does not say is zero; the parts have
// their own defaults. Paths are absolute: relative ones in the file start from
// its folder.
type File struct {
	// Agent is the program that does the tasks.
	Agent Agent
	// Data are the tasks.
	Data Data
	// Prompts are the prompt templates among the resources, in the file's order.
	Prompts []agl.NamedResource
	// Proxy stands in front of the models; nil when the agent calls none.
	Proxy *Proxy
	// Engine trains weights; nil when nothing does.
	Engine *Engine
	// Algorithm learns.
	Algorithm Algorithm
	// Store keeps the run.
	Store Store
	// Output is the folder of results; runs/NAME beside the file NAME.yaml when it
	// does not say.
	Output string
	// Seed decides every draw of the run.
	Seed uint64
}

// Agent is the program that does the tasks, and how it is run.
type Agent struct {
	// Process is how one attempt's program is run. Dir is the file's folder unless
	// the file says otherwise. Environ, StoreURL, SpanToken, LookupEnv, Reaper and
	// Logger are the runner's to set.
	Process process.Config
	// Concurrency is how many rollouts run at once; zero means 4.
	Concurrency int
	// Rollout bounds attempts and says which outcomes are tried again.
	Rollout agl.RolloutConfig
}

// Data are the task files.
type Data struct {
	// Train is required unless the algorithm enqueues nothing.
	Train *Tasks
	// Val is what candidates are validated with; nil is none, or a share of Train
	// when ValShare says so.
	Val *Tasks
	// ValShare, in (0, 1), takes this share of the shuffled Train as Val.
	ValShare float64
	// Shuffle shuffles both files by Seed before anything is taken from them.
	Shuffle bool
	// Seed of the shuffle; File.Seed when the file does not say.
	Seed uint64
}

// Tasks is one task file.
type Tasks struct {
	Path    string
	Options dataset.Options
	// Limit takes only the first tasks, after shuffling; zero takes all.
	Limit int
}

// Proxy is the LLM proxy of the run. With an Engine, which serves the one model
// that is trained, no models of its own are needed.
type Proxy struct {
	// Config is the proxy's own; secrets are env:NAME.
	Config proxy.Config
	// Listen is host:port; empty is a free port of 127.0.0.1.
	Listen string
	// Model is what agents are told to ask for; the first when the file does not
	// say.
	Model string
	// Sampling are the sampling parameters of training, ValSampling those of
	// validation; objects, nil is {} and the same as Sampling.
	Sampling, ValSampling jsontext.Value
}

// Engine trains the weights of a model and serves it. One of its fields is set.
type Engine struct {
	// Policy is the embedded model.
	Policy *Policy
	// Tinker is an engine elsewhere.
	Tinker *Tinker
}

// WarmStart is that of either; nil is none.
func (e *Engine) WarmStart() *WarmStart {
	switch {
	case e == nil:
		return nil
	case e.Policy != nil:
		return e.Policy.WarmStart
	case e.Tinker != nil:
		return e.Tinker.WarmStart
	}
	return nil
}

// Tinker is an engine that speaks the Tinker protocol over HTTP.
type Tinker struct {
	// Client says where it is and how it is spoken to. APIKey is env:NAME; Transport
	// and Logger are the run's to set.
	Client client.Config
	// Model is the base model; empty is the engine's first.
	Model string
	// LoRARank is the rank of the adapter that is trained; zero means 32.
	LoRARank int
	// Seed initialises what the engine draws for the model; null is File.Seed.
	Seed agl.Null[uint64]
	// Chat is the chat format.
	Chat Chat
	// Weights is a checkpoint of the engine to start from; empty is the base model.
	Weights string
	// WarmStart is supervised training that comes first, for the format of
	// characters; nil is none.
	WarmStart *WarmStart
}

// Chat is how conversations become tokens: as the files in Folder have it, or one
// token per character.
type Chat struct {
	// Folder holds tokenizer.json, tokenizer_config.json and what else
	// pretrained.Open reads.
	Folder string
	// Style and Stop are those of pretrained.Config.
	Style pretrained.Style
	Stop  []string
	// Characters is the vocabulary without a Folder; empty is chat.NewCharacters' own.
	Characters string
}

// Policy is the embedded model, behind a character vocabulary.
type Policy struct {
	// Config holds the sizes. Vocab, Dir and Workers are the run's to set.
	Config policy.Config
	// Characters is the vocabulary; empty is chat.NewCharacters' own.
	Characters string
	// WarmStart is supervised training that comes first; nil is none.
	WarmStart *WarmStart
}

// WarmStart teaches a model conversations before reinforcement learning: the
// tokens of the assistant's messages are what it learns.
type WarmStart struct {
	// Path is a JSONL file of {"messages": [{"role": …, "content": …}, …]}.
	Path string
	// Steps and Batch, in conversations; zero means 1200 and 32.
	Steps, Batch int
	// Schedule is the learning rate; a zero Peak means 3e-3 with a warm-up of a
	// tenth of the steps, at most 100.
	Schedule algorithm.Schedule
}

// Algorithm is what learns. One of its fields is set. What comes from other parts
// of the run (services, publishers, flushers, folders, seeds, loggers, the limits
// of attempts) is the run's to set in it.
type Algorithm struct {
	GRPO     *grpo.Config
	SFT      *SFT
	APO      *APO
	Baseline *baseline.Config
}

// SFT is fine-tuning on rollouts.
type SFT struct {
	Config sft.Config
	// From is where rollouts to learn from are kept, by its Database, or its URL and
	// Token; nil means that the run makes its own.
	From *Store
}

// APO is prompt optimisation by textual gradients.
type APO struct {
	Config apo.Config
	// Gradient and Edit are the models that criticise and rewrite prompts. BaseURL
	// empty means a model of the run's own proxy; APIKey is env:NAME. Edit nil is
	// Gradient.
	Gradient apo.EndpointConfig
	Edit     *apo.EndpointConfig
}

// Store says where the run is kept.
type Store struct {
	// Database is a --db value; empty is the file agl.db in Output.
	Database string
	// URL is that of a store server that runs elsewhere, instead of a Database.
	URL string
	// Token is env:NAME; empty is the environment's AGL_TOKEN.
	Token string
	// Listen is host:port at which runners on other machines find the store of this
	// run; empty means that there are none.
	Listen string
	// Unresponsive fails an attempt that nobody has heard of for so long; zero means
	// 10 minutes.
	Unresponsive time.Duration
}
