// Package runfile reads the file that `agl train` runs: agent, data, resources,
// proxy, engine, algorithm, store and output folder in one YAML file.
//
//	file, err := runfile.Read("agl.yaml", runfile.Options{})
//
// [Read] returns a [File], or an [Error] with every mistake and its line. The
// algorithms that a file can name come from package algorithms. The package knows the
// settings of the parts; it must not know how they are run.
package runfile

import (
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/tinker/chat/pretrained"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/inference"
	"github.com/agl-go/agl/trainer/tracker"
)

// File is the content of a run file. What it leaves out is zero; the parts have
// their own defaults. Paths are absolute: relative ones start from the folder of the
// file.
type File struct {
	// Agent is the program that does the tasks.
	Agent Agent
	// Data has the tasks.
	Data Data
	// Prompts are the prompt templates among the resources, in the order of the file.
	Prompts []agl.NamedResource
	// Proxy stands in front of the models; nil if the agent calls none.
	Proxy *Proxy
	// Engine serves a model of the run's own; nil if there is none.
	Engine *Engine
	// Roles are the agents of a rollout that have models of their own on the engine; nil if there is only one.
	Roles []Role
	// Algorithm learns.
	Algorithm algorithms.Algorithm
	// Store is where the run is stored.
	Store Store
	// Trackers get the metrics, besides metrics.jsonl.
	Trackers Trackers
	// Output is the folder of results; by default runs/NAME beside the file NAME.yaml.
	Output string
	// Seed decides every random choice of the run.
	Seed uint64
}

// Role is an agent with a model of its own.
type Role struct {
	// Role has the name, the model's name, the reward and the learning rate.
	algorithm.Role
	// Frozen keeps the first weights.
	Frozen bool
}

// Trackers are where people look at metrics.
type Trackers struct {
	// TensorBoard is a folder of event files; empty makes none.
	TensorBoard string
	// MLflow is a tracking server; nil is none. Token is env:NAME or empty; an empty Experiment means "agl". The run sets Params, StateFile and Transport.
	MLflow *tracker.MLflowConfig
}

// Agent is the program that does the tasks, and how it runs.
type Agent struct {
	// Process is the program of one attempt. Dir is by default the folder of the file.
	// The runner sets Environ, Withhold, StoreURL, SpanToken, Reaper and Logger.
	Process process.Config
	// Concurrency is the number of rollouts at the same time; zero means 4.
	Concurrency int
	// Rollout limits attempts and says which outcomes are retried.
	Rollout agl.RolloutConfig
}

// Data has the task files.
type Data struct {
	// Train is required unless the algorithm enqueues nothing.
	Train *Tasks
	// Val has the validation tasks; nil means none, or a share of Train.
	Val *Tasks
	// ValShare, in (0, 1), takes this share of the shuffled Train as Val.
	ValShare float64
	// Shuffle shuffles both files by Seed first.
	Shuffle bool
	// Seed of the shuffle; by default File.Seed.
	Seed uint64
}

// Tasks is one task file.
type Tasks struct {
	Path    string
	Options dataset.Options
	// Limit takes only the first tasks, after shuffling; zero takes all.
	Limit int
}

// Proxy is the LLM proxy of the run. With an Engine, which serves the model in
// training, it needs no models of its own.
type Proxy struct {
	// Config is that of the proxy; secrets are env:NAME.
	Config proxy.Config
	// Listen is host:port; empty is a free port of 127.0.0.1.
	Listen string
	// TLS encrypts it.
	TLS TLS
	// Model is what agents are told to request; by default the first.
	Model string
	// Sampling are the sampling parameters of training, ValSampling those of
	// validation: objects. Nil is {}, and the same as Sampling.
	Sampling, ValSampling jsontext.Value
}

// Engine serves a model and, unless it is a Server, trains its weights. One of its fields
// is set.
type Engine struct {
	// Policy is the embedded model.
	Policy *Policy
	// Tinker is a remote engine.
	Tinker *Tinker
	// Server is an inference server that the run starts.
	Server *Server
}

// Trains reports whether it trains weights; nil does not.
func (e *Engine) Trains() bool { return e != nil && (e.Policy != nil || e.Tinker != nil) }

// Server is an inference server that the run starts and ends.
type Server struct {
	// Config is its process. The run sets Env, Lost, Output and Logger.
	Config inference.Config
	// Model is its entry in the proxy. The run sets Name and BaseURL.
	Model proxy.Model
}

// WarmStart returns that of either engine; nil if there is none.
func (e *Engine) WarmStart() *engine.WarmStart {
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

// Tinker is a remote engine that speaks the Tinker protocol over HTTP.
type Tinker struct {
	// Client is how the engine is reached. APIKey is env:NAME; the run sets Transport
	// and Logger.
	Client client.Config
	// Model is the base model; empty is the engine's first.
	Model string
	// LoRARank is the rank of the adapter; zero means 32.
	LoRARank int
	// Seed is the seed of the model's initial weights; null is File.Seed.
	Seed agl.Null[uint64]
	// Chat is the chat format.
	Chat Chat
	// Weights is a checkpoint of the engine to start from; empty is the base model.
	Weights string
	// WarmStart is supervised training before the algorithm, for a chat format of
	// characters; nil is none. The run sets Model, Seed, OutDir, OnStep and Logger.
	WarmStart *engine.WarmStart
}

// Chat says how conversations become tokens: by the files in Folder, or one token per
// character.
type Chat struct {
	// Folder has tokenizer.json, tokenizer_config.json and what else pretrained.Open
	// reads.
	Folder string
	// Config has the settings that the files lack. The run sets Logger.
	pretrained.Config
	// Characters is the vocabulary without a Folder; empty is chat.DefaultAlphabet.
	Characters string
}

// Policy is the embedded model with a vocabulary of characters.
type Policy struct {
	// Config has the sizes. The run sets Vocab, Dir and Workers.
	Config policy.Config
	// Characters is the vocabulary; empty is chat.DefaultAlphabet.
	Characters string
	// WarmStart is supervised training before the algorithm; nil is none. The run sets
	// Model, Seed, OutDir, OnStep and Logger.
	WarmStart *engine.WarmStart
}

// TLS has the files with which a listener encrypts, as PEM; the zero value does not.
type TLS struct {
	Cert, Key string
	// Insecure lets other machines reach a listener that does not encrypt.
	Insecure bool
}

// Store says where the run is stored.
type Store struct {
	// Database is a --db value; empty is the file agl.db in Output.
	Database string
	// URL is that of a store server, instead of a Database.
	URL string
	// Token is env:NAME; empty is the environment's AGL_TOKEN.
	Token string
	// Listen is host:port of the store of this run for runners on other machines; empty
	// means that there are none.
	Listen string
	// TLS encrypts it.
	TLS TLS
	// Unresponsive fails an attempt without a heartbeat for this time, if its rollout sets none; zero means 10
	// minutes.
	Unresponsive time.Duration
}
