// Package engine joins an engine that trains weights with the chat server that
// serves them to the agents of a run, and swaps the weights while agents call.
//
// [NewPolicy] makes an engine of the embedded policy, [NewRemote] one that speaks
// the Tinker protocol. [Engine.Model] and [Engine.Transport] connect it to an LLM
// proxy, [Engine.Publisher] to an algorithm.
//
// It must not know what is learned, or by which algorithm.
package engine

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
)

// DefaultName is the name of the model for agents.
const DefaultName = "policy"

// Engine trains a model and serves it to an LLM proxy in this process. The caller of [NewPolicy] or [NewRemote] closes it.
type Engine struct {
	Service   tinker.Service
	Tokenizer chat.Tokenizer
	Renderer  chat.Renderer

	name   string
	lost   func(error)
	logger *slog.Logger
	chat   *chat.Server
	close  func() error // of the connection; nil when there is none

	published chan struct{} // closed by the first publication
	publish   sync.Once     // closes published

	mu        sync.Mutex
	models    []tinker.TrainingClient // behind the snapshots of Snapshot
	snapshots []string                // of Snapshot
}

// newEngine makes an engine that serves no model yet: see [Engine.Publisher].
func newEngine(service tinker.Service, tokenizer chat.Tokenizer, renderer chat.Renderer, name string, lost func(error), logger *slog.Logger) (*Engine, error) {
	name, logger = cmp.Or(name, DefaultName), cmp.Or(logger, slog.New(slog.DiscardHandler))
	server, err := chat.NewServer(chat.Config{
		Tokenizer: tokenizer, Renderer: renderer, Logger: logger,
		Open: func(_ context.Context, asked string) (chat.Model, error) {
			return chat.Model{}, unpublished(asked, name)
		},
	})
	if err != nil {
		return nil, err
	}
	return &Engine{
		Service: service, Tokenizer: tokenizer, Renderer: renderer, name: name, lost: lost, logger: logger, chat: server, published: make(chan struct{}),
	}, nil
}

// Published returns a channel that is closed when a [Publisher] of the engine has published for the first time.
func (e *Engine) Published() <-chan struct{} { return e.published }

// unpublished returns why a requested model is not served: CodeNotFound for a name that is unknown, CodeIllegalState for the model before its
// first weights.
func unpublished(name, model string) error {
	if name != model {
		return agl.Errorf(agl.CodeNotFound, "it was never served here, or its weights were replaced by newer ones; GET /v1/models lists what is served")
	}
	return agl.Errorf(agl.CodeIllegalState,
		"the model %q has no weights yet: a run trains or loads them when it starts; in Go, Engine.Publisher(proxy).Publish makes a proxy send calls to them", model)
}

// Close deletes the snapshots of [Engine.Snapshot], unloads its models, and ends the session with a remote engine.
func (e *Engine) Close(ctx context.Context) error {
	e.mu.Lock()
	models, snapshots := e.models, e.snapshots
	e.models, e.snapshots = nil, nil
	e.mu.Unlock()
	e.remove(ctx, snapshots)
	algorithm.Unload(ctx, e.logger, models...)
	if e.close != nil {
		return e.close()
	}
	return nil
}

// removeTimeout limits the deletions at the end: the engine may be away.
const removeTimeout = 10 * time.Second

// remove deletes snapshots, if the engine can delete any.
func (e *Engine) remove(ctx context.Context, snapshots []string) {
	ctx, done := context.WithTimeout(ctx, removeTimeout)
	defer done()
	for _, path := range snapshots {
		if err := algorithm.DeleteWeights(ctx, e.Service, path); err != nil {
			e.logger.WarnContext(ctx, "the engine has not deleted a snapshot", "error", err)
		}
	}
}

// host stands for the chat server in this process: [Engine.Transport] serves its
// requests, and no name is looked up. The top-level domain is reserved (RFC 2606,
// §2).
const (
	host    = "policy.invalid"
	baseURL = "http://" + host + "/v1"
)

// Model returns the entry of the trained model for a proxy's list of models. Calls
// to it fail before the first publication.
func (e *Engine) Model() proxy.Model {
	return proxy.Model{Name: e.name, BaseURL: baseURL, ChatOnly: true}
}

// Transport returns the transport of a proxy that serves [Engine.Model]. Requests to
// other backends go to others; nil means that there are none.
func (e *Engine) Transport(others http.RoundTripper) http.RoundTripper {
	here := chat.Transport{Handler: e.chat}
	if others == nil {
		return here
	}
	return transport{here, others}
}

// Handler serves the models under /v1, like OpenAI's API, for clients of other
// processes.
func (e *Engine) Handler() http.Handler { return e.chat }

type transport struct{ here, others http.RoundTripper }

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
		client = &watched{SamplingClient: client, lost: e.lost}
	}
	e.chat.SetModel(version, chat.Model{Client: client, Version: version})
	return nil
}

// Context is the context of a served version, in tokens; 0 is unknown.
func (e *Engine) Context(version string) int {
	model, ok := e.chat.Model(version)
	if !ok {
		return 0
	}
	return model.Client.Spec().Context
}

// Logprobs returns the log-probabilities that a served version gives to each token but the first. There must be fewer tokens than
// its context has.
func (e *Engine) Logprobs(ctx context.Context, version string, tokens []int32) ([]float32, error) {
	model, ok := e.chat.Model(version)
	if !ok {
		return nil, unpublished(version, e.name)
	}
	result, err := model.Client.Sample(ctx, tinker.SampleParams{Prompt: tokens, MaxTokens: 1, Temperature: 1, PromptLogprobs: true})
	if err == nil && len(result.PromptLogprobs) != len(tokens)-1 {
		err = agl.Errorf(agl.CodeUnimplemented, "engine: it returned %d log-probabilities for %d tokens", len(result.PromptLogprobs), len(tokens))
	}
	return result.PromptLogprobs, err
}

// watched is a sampler that reports when it is lost. An engine that fails to sample
// by its own fault (agl.CodeInternal) is not lost; one that has no room (agl.CodeExhausted)
// for as long as its client asks again is.
type watched struct {
	tinker.SamplingClient

	lost         func(error)
	replies, nan atomic.Int64 // nan are those with a log-probability that is NaN
}

// uselessReplies is how many replies with the log-probability NaN, at least half of all, show that weights are useless. Fewer
// may be a fault of the engine.
const uselessReplies = 4

func (w *watched) Sample(ctx context.Context, p tinker.SampleParams) (tinker.SampleResult, error) {
	result, err := w.SamplingClient.Sample(ctx, p)
	switch {
	case errors.Is(err, agl.ErrUnavailable) || errors.Is(err, agl.ErrExhausted) || errors.Is(err, agl.ErrNotFound):
		w.lost(err)
	case err != nil:
	default:
		all, nan := w.replies.Add(1), w.nan.Load()
		if slices.ContainsFunc(result.Sequences, hasNaN) {
			nan = w.nan.Add(1)
		}
		if nan >= uselessReplies && 2*nan >= all {
			w.lost(agl.Errorf(agl.CodeIllegalState,
				"%w: %d of %d replies have the log-probability NaN; begin a new run with a smaller learning rate", tinker.ErrUseless, nan, all))
		}
	}
	return result, err
}

func hasNaN(s tinker.Sequence) bool {
	return slices.ContainsFunc(s.Logprobs, func(p float32) bool { return p != p })
}

// Snapshot creates a model, loads the weights of a checkpoint if there is one, and
// returns the path of a snapshot for [Engine.Serve]. Both stay until Close, as some
// engines cannot sample without the model.
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
	if path, err = client.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: "served"}); err != nil {
		return "", err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.snapshots = append(e.snapshots, path)
	return path, nil
}

// Models is a proxy whose models can be replaced.
type Models interface {
	// SetModels replaces the list of models. Running calls finish on the old list.
	SetModels(models []proxy.Model) error
}

// Publisher returns a publisher that swaps the weights of [Engine.Model] in a proxy,
// whose other models are given.
func (e *Engine) Publisher(models Models, others ...proxy.Model) *Publisher {
	return e.Publishers(models, []string{e.name}, others...)[0]
}

// Publishers returns a publisher for each of several models of the engine, which agents request by these names. The proxy does
// not know a model without weights.
func (e *Engine) Publishers(models Models, names []string, others ...proxy.Model) []*Publisher {
	all := &modelList{to: models}
	list := make([]*Publisher, len(names))
	for i, name := range names {
		model := e.Model()
		model.Name = name
		all.models = append(all.models, model)
		list[i] = &Publisher{engine: e, list: all, place: i}
	}
	all.models = append(all.models, others...)
	return list
}

// modelList is the list of models that several publishers together keep up to date in a proxy.
type modelList struct {
	to Models

	mu     sync.Mutex
	models []proxy.Model
}

// served is a version that the chat server has.
type served struct {
	version   string
	resources string // that it was published with
}

// edit replaces the list by what change makes of a copy.
func (l *modelList) edit(change func(models []proxy.Model) []proxy.Model) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	models := change(slices.Clone(l.models))
	if err := l.to.SetModels(models); err != nil {
		return err
	}
	l.models = models
	return nil
}

// serve makes the calls of a model go to the newest of the versions, and those of rollouts that are pinned to one go to that.
func (l *modelList) serve(place int, versions []served, pinned map[string]string) error {
	return l.edit(func(models []proxy.Model) []proxy.Model {
		name := models[place].Name
		models = slices.DeleteFunc(models, func(m proxy.Model) bool { return m.Name == name && m.Resources != "" })
		newest := versions[len(versions)-1].version
		models[place].BackendModel, models[place].Version = newest, newest
		for _, resources := range slices.Sorted(maps.Keys(pinned)) {
			for _, v := range versions {
				if resources != "" && v.resources == pinned[resources] {
					one := models[place]
					one.BackendModel, one.Version, one.Resources = v.version, v.version, resources
					models = append(models, one)
				}
			}
		}
		return models
	})
}

// add makes a version a further model.
func (l *modelList) add(place int, name, version string) error {
	return l.edit(func(models []proxy.Model) []proxy.Model {
		model := models[place]
		model.Name, model.BackendModel, model.Version = name, version, version
		return append(without(models, name), model)
	})
}

// remove removes a model that add has added.
func (l *modelList) remove(name string) error {
	return l.edit(func(models []proxy.Model) []proxy.Model { return without(models, name) })
}

func without(models []proxy.Model, name string) []proxy.Model {
	return slices.DeleteFunc(models, func(m proxy.Model) bool { return m.Name == name })
}

// Publisher is an [algorithm.Publisher] of an engine: new calls go to the new
// snapshot, running calls finish on the one before, and those of rollouts that are
// pinned to a version go to that.
type Publisher struct {
	engine *Engine
	list   *modelList
	place  int // in the list

	mu       sync.Mutex
	versions []served // the newest last
}

var _ algorithm.Publisher = (*Publisher)(nil)

// Publish implements [algorithm.Publisher].
func (p *Publisher) Publish(ctx context.Context, publication algorithm.Publication) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if publication.Version == "" {
		return agl.Errorf(agl.CodeInvalid, "engine: the publication has no version")
	}
	versions := slices.Clone(p.versions)
	if newest := (served{publication.Version, publication.ResourcesID}); len(versions) == 0 || versions[len(versions)-1] != newest {
		if err := p.engine.Serve(ctx, publication.Snapshot, publication.Version); err != nil {
			return err
		}
		versions = append(versions, newest)
	}
	if err := p.list.serve(p.place, versions, publication.Pinned); err != nil {
		return err
	}
	p.engine.publish.Do(func() { close(p.engine.published) })
	// Calls that the proxy has just forwarded may still request the version before.
	p.versions = nil
	for i, v := range versions {
		if i < len(versions)-2 && !publication.Keeps(v.resources) {
			p.engine.chat.RemoveModel(v.version)
			continue
		}
		p.versions = append(p.versions, v)
	}
	return nil
}

// PublishAs serves a snapshot under a model name of its own, beside what [Publisher.Publish] has published, until
// [Publisher.Remove].
func (p *Publisher) PublishAs(ctx context.Context, name string, publication algorithm.Publication) error {
	if err := p.engine.Serve(ctx, publication.Snapshot, publication.Version); err != nil {
		return err
	}
	return p.list.add(p.place, name, publication.Version)
}

// Remove stops serving a version of [Publisher.PublishAs].
func (p *Publisher) Remove(name, version string) error {
	if err := p.list.remove(name); err != nil {
		return err
	}
	p.engine.chat.RemoveModel(version)
	return nil
}
