// Package engine is an engine whose model a run serves and trains: the weights
// behind a chat format, the chat server in front of them, and the swap of weights
// while agents call.
//
// It must not know what is learned, nor by what algorithm.
package engine

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
)

// Config configures [New]. Service, Tokenizer and Renderer are required.
type Config struct {
	// Service makes, trains and samples models.
	Service tinker.Service
	// Tokenizer and Renderer are the chat format of its models.
	Tokenizer chat.Tokenizer
	Renderer  chat.Renderer
	// Name is what agents ask for, whatever weights are behind it; empty is
	// DefaultName.
	Name string
	// Lost is called when the model that is served cannot be sampled any more: the
	// engine stays away, or has lost it. Nothing can be learned from then on. It may
	// be called often, and by several goroutines; nil is nobody.
	Lost func(error)
	// Logger hears faults of the sampler; nil discards.
	Logger *slog.Logger
}

// DefaultName is the name of the model for agents.
const DefaultName = "policy"

// Engine trains a model and serves it to an LLM proxy of this process. It is
// closed by who made it.
type Engine struct {
	Service   tinker.Service
	Tokenizer chat.Tokenizer
	Renderer  chat.Renderer

	name  string
	lost  func(error)
	chat  *chat.Server
	close func() error // of the connection; nil when there is none

	mu     sync.Mutex
	models []tinker.TrainingClient // behind the snapshots of Snapshot
}

// New makes an engine without a model that is served: see [Engine.Publisher].
func New(cfg Config) (*Engine, error) {
	if cfg.Service == nil {
		return nil, agl.Errorf(agl.CodeInvalid, "engine: Config.Service is required")
	}
	server, err := chat.NewServer(chat.Config{Tokenizer: cfg.Tokenizer, Renderer: cfg.Renderer, Logger: cfg.Logger})
	if err != nil {
		return nil, err
	}
	if cfg.Name == "" {
		cfg.Name = DefaultName
	}
	return &Engine{Service: cfg.Service, Tokenizer: cfg.Tokenizer, Renderer: cfg.Renderer, name: cfg.Name, lost: cfg.Lost, chat: server}, nil
}

// Close gives back what the engine holds: the models of [Engine.Snapshot], and
// the connection to an engine elsewhere, which ends its session.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	models := e.models
	e.models = nil
	e.mu.Unlock()
	var err error
	for _, model := range models {
		err = errors.Join(err, model.Unload(ctx))
	}
	if e.close != nil {
		err = errors.Join(err, e.close())
	}
	return err
}

// host is where the proxy finds the chat server: in this process, so no host of
// that name is ever asked. The top-level domain is reserved (RFC 2606, §2).
const (
	host    = "policy.invalid"
	baseURL = "http://" + host + "/v1"
)

// Model is the entry of the trained model in a proxy's list. There are no weights
// behind it before the first publication.
func (e *Engine) Model() proxy.Model {
	return proxy.Model{Name: e.name, BaseURL: baseURL, ChatOnly: true}
}

// Transport is the transport of a proxy that serves [Engine.Model] and, by the
// transport given, other backends; nil means that there are none.
func (e *Engine) Transport(others http.RoundTripper) http.RoundTripper {
	here := chat.Transport{Handler: e.chat}
	if others == nil {
		return here
	}
	return transport{here, others}
}

type transport struct{ here, others http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (t transport) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Host == host {
		return t.here.RoundTrip(req)
	}
	return t.others.RoundTrip(req)
}

// Serve serves a checkpoint or a snapshot of the engine under a version.
func (e *Engine) Serve(ctx context.Context, path, version string) error {
	client, err := e.Service.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: path})
	if err != nil {
		return err
	}
	if e.lost != nil {
		client = watched{client, e.lost}
	}
	e.chat.SetModel(version, chat.Model{Client: client, Version: version})
	return nil
}

// watched is a sampler that tells when it is of no use any more. An engine that fails
// at a draw of its own accord (agl.CodeInternal) is still there for others.
type watched struct {
	tinker.SamplingClient

	lost func(error)
}

// Sample implements [tinker.SamplingClient].
func (w watched) Sample(ctx context.Context, p tinker.SampleParams) (tinker.SampleResult, error) {
	result, err := w.SamplingClient.Sample(ctx, p)
	if errors.Is(err, agl.ErrUnavailable) || errors.Is(err, agl.ErrNotFound) {
		w.lost(err)
	}
	return result, err
}

// Snapshot makes a model, of the weights of a checkpoint unless empty, and returns
// the path of a snapshot of it, for [Engine.Serve]. The model stays until Close, as
// there are engines that cannot sample without it.
func (e *Engine) Snapshot(ctx context.Context, p tinker.CreateModelParams, weights string) (path string, err error) {
	client, err := e.Service.CreateModel(ctx, p)
	if err != nil {
		return "", err
	}
	e.mu.Lock()
	e.models = append(e.models, client)
	e.mu.Unlock()
	if weights != "" {
		if err := client.LoadWeights(ctx, tinker.LoadWeightsParams{Path: weights}); err != nil {
			return "", err
		}
	}
	return client.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: "served"})
}

// Models is what a [Publisher] needs of a proxy.
type Models interface {
	// SetModels replaces the list of models; calls that run end where they began.
	SetModels(models []proxy.Model) error
}

// Publisher returns what swaps the weights behind [Engine.Model] in a proxy whose
// other models are given.
func (e *Engine) Publisher(models Models, others ...proxy.Model) *Publisher {
	return &Publisher{engine: e, models: models, others: others}
}

// Publisher is a [algorithm.Publisher] over an engine of this process: new calls go to
// the snapshot, running ones finish where they began.
type Publisher struct {
	engine *Engine
	models Models
	others []proxy.Model

	mu       sync.Mutex
	versions []string // that are served, the newest last
}

var _ algorithm.Publisher = (*Publisher)(nil)

// Publish implements [algorithm.Publisher].
func (p *Publisher) Publish(ctx context.Context, publication algorithm.Publication) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if publication.Version == "" {
		return agl.Errorf(agl.CodeInvalid, "engine: the publication has no version")
	}
	if err := p.engine.Serve(ctx, publication.Snapshot, publication.Version); err != nil {
		return err
	}
	model := p.engine.Model()
	model.BackendModel, model.Version = publication.Version, publication.Version
	if err := p.models.SetModels(append([]proxy.Model{model}, p.others...)); err != nil {
		return err
	}
	// The version before may still be asked for by calls that the proxy has just
	// forwarded; the one before that is asked for no more.
	const served = 2
	p.versions = append(p.versions, publication.Version)
	for len(p.versions) > served {
		p.engine.chat.RemoveModel(p.versions[0])
		p.versions = p.versions[1:]
	}
	return nil
}
