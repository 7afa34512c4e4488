package tinkertest

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/server"
)

// EngineConfig configures an [Engine].
type EngineConfig struct {
	// Service is the engine that does the work. Required.
	Service tinker.Service
	// Losses are the losses that the engine has; nil means all of Service.
	Losses []tinker.LossName
	// DatumMean averages losses as [engines.DatumMean] says.
	DatumMean bool
	// NewestOnly allows sampling a snapshot only while it is its model's newest and no ForwardBackward has followed it.
	// Any other sample is agl.ErrIllegalState, and recorded in [Engine.Violations].
	NewestOnly bool
}

// Imitate returns a server and an engine, without its Service, that behave like an engine of the table. Its snapshots
// change where that engine's do.
func Imitate(e engines.Engine) (server.Config, EngineConfig) {
	return server.Config{Encoding: e.Encoding, Order: e.Order, HideEngine: !e.SelfDescribing},
		EngineConfig{Losses: e.Losses, DatumMean: e.Normalization == engines.DatumMean, NewestOnly: !e.ImmutableSnapshots}
}

// Engine wraps an engine, records every gradient, and has the limits of engines that run elsewhere. It is safe for
// concurrent use.
type Engine struct {
	tinker.Service
	cfg EngineConfig

	mu         sync.Mutex
	histories  map[string][]Step       // by checkpoint
	models     map[string]*engineModel // by snapshot
	twice      int
	violations []string
}

var _ tinker.Service = (*Engine)(nil)

// Step is one optimizer step: the digests of the batches whose gradients it applied.
type Step []string

// NewEngine makes an engine.
func NewEngine(cfg EngineConfig) (*Engine, error) {
	if cfg.Service == nil {
		return nil, agl.Errorf(agl.CodeInvalid, "tinkertest: Service is nil; an engine is required")
	}
	return &Engine{Service: cfg.Service, cfg: cfg, histories: map[string][]Step{}, models: map[string]*engineModel{}}, nil
}

// History returns the steps behind a checkpoint's weights since the model was created. ok is false for weights that this
// engine did not save.
func (e *Engine) History(path string) (steps []Step, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	steps, ok = e.histories[path]
	return slices.Clone(steps), ok
}

// Twice returns how often a batch was added to a gradient that contained it already.
func (e *Engine) Twice() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.twice
}

// Violations returns the calls that broke NewestOnly.
func (e *Engine) Violations() []string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return slices.Clone(e.violations)
}

// violation records a call that broke NewestOnly. The lock is held.
func (e *Engine) violation(format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	e.violations = append(e.violations, text)
	return agl.Errorf(agl.CodeIllegalState, "tinkertest: %s", text)
}

// Capabilities implements [tinker.Service].
func (e *Engine) Capabilities(ctx context.Context) (tinker.Capabilities, error) {
	can, err := e.Service.Capabilities(ctx)
	if err != nil {
		return can, err
	}
	if e.cfg.Losses != nil {
		can.Losses = slices.Clone(e.cfg.Losses)
	}
	can.SummedLoss = can.SummedLoss && !e.cfg.DatumMean
	can.ImmutableSnapshots = can.ImmutableSnapshots && !e.cfg.NewestOnly
	return can, nil
}

// CreateModel implements [tinker.Service].
func (e *Engine) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	inner, err := e.Service.CreateModel(ctx, p)
	if err != nil {
		return nil, err
	}
	return &engineModel{TrainingClient: inner, engine: e}, nil
}

// NewSamplingClient implements [tinker.Service].
func (e *Engine) NewSamplingClient(ctx context.Context, p tinker.NewSamplingClientParams) (tinker.SamplingClient, error) {
	inner, err := e.Service.NewSamplingClient(ctx, p)
	if err != nil {
		return nil, err
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return &engineSampler{SamplingClient: inner, engine: e, path: p.Path, model: e.models[p.Path]}, nil
}

// engineModel records the calls of one model, which must be made one at a time: otherwise it is unknown which gradients a
// step applies. The engine's lock guards the fields.
type engineModel struct {
	tinker.TrainingClient

	engine  *Engine
	history []Step
	pending Step
	data    []tinker.ForwardParams // the batches of pending, for DatumMean
	newest  string                 // the snapshot that may be sampled
	samples int                    // in flight
}

func digest(p tinker.ForwardParams) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%v", p))
	return hex.EncodeToString(sum[:8])
}

func (m *engineModel) ForwardBackward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	if err := m.begin(p.Loss); err != nil {
		return tinker.ForwardResult{}, err
	}
	run := m.TrainingClient.ForwardBackward
	if m.engine.cfg.DatumMean {
		if _, err := means(p, 1); err != nil {
			return tinker.ForwardResult{}, err
		}
		run = m.Forward // OptimStep adds the gradients, when all data of the step are known
	}
	res, err := run(ctx, p)
	if err != nil {
		return res, err
	}
	m.engine.mu.Lock()
	defer m.engine.mu.Unlock()
	d := digest(p)
	if slices.Contains(m.pending, d) {
		m.engine.twice++
	}
	m.pending = append(m.pending, d)
	if m.engine.cfg.DatumMean {
		p.Data = slices.Clone(p.Data)
		m.data = append(m.data, p)
	}
	return res, nil
}

// begin checks whether a gradient may be added now.
func (m *engineModel) begin(loss tinker.Loss) error {
	e := m.engine
	if e.cfg.Losses != nil && !slices.Contains(e.cfg.Losses, loss.Name) {
		return agl.Errorf(agl.CodeInvalid, "tinkertest: loss: this engine has no %q; it has %q", loss.Name, e.cfg.Losses)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.cfg.NewestOnly && m.samples > 0 {
		return e.violation("forward_backward beside %d samples of %s", m.samples, m.newest)
	}
	m.newest = ""
	return nil
}

// means scales the weights of a batch so that the sum of its losses is its part of the mean over all data of a step, of
// each datum's weighted mean.
func means(p tinker.ForwardParams, all int) (tinker.ForwardParams, error) {
	p.Data = slices.Clone(p.Data)
	for i := range p.Data {
		d := &p.Data[i]
		weights := slices.Clone(d.Weights)
		if weights == nil {
			weights = slices.Repeat([]float32{1}, len(d.Input))
		}
		sum := 0.0
		for _, w := range weights {
			sum += float64(w)
		}
		if !(sum > 0) {
			return p, agl.Errorf(agl.CodeInvalid, "tinkertest: data[%d]: weights: their sum is %v, by which this engine divides", i, sum)
		}
		for j := range weights {
			weights[j] = float32(float64(weights[j]) / sum / float64(all))
		}
		d.Weights = weights
	}
	return p, nil
}

func (m *engineModel) OptimStep(ctx context.Context, p tinker.AdamParams) (tinker.OptimStepResult, error) {
	m.engine.mu.Lock()
	data, all := m.data, 0
	m.data = nil
	m.engine.mu.Unlock()
	for _, batch := range data {
		all += len(batch.Data)
	}
	for _, batch := range data {
		scaled, err := means(batch, all)
		if err != nil {
			return tinker.OptimStepResult{}, err
		}
		if _, err := m.TrainingClient.ForwardBackward(ctx, scaled); err != nil {
			return tinker.OptimStepResult{}, err
		}
	}
	res, err := m.TrainingClient.OptimStep(ctx, p)
	if err != nil {
		return res, err
	}
	m.engine.mu.Lock()
	defer m.engine.mu.Unlock()
	m.history, m.pending, m.newest = append(slices.Clip(m.history), m.pending), nil, ""
	return res, nil
}

func (m *engineModel) SaveWeights(ctx context.Context, p tinker.SaveWeightsParams) (string, error) {
	path, err := m.TrainingClient.SaveWeights(ctx, p)
	if err != nil {
		return "", err
	}
	m.engine.mu.Lock()
	defer m.engine.mu.Unlock()
	m.engine.histories[path] = m.history
	return path, nil
}

func (m *engineModel) LoadWeights(ctx context.Context, p tinker.LoadWeightsParams) error {
	if err := m.TrainingClient.LoadWeights(ctx, p); err != nil {
		return err
	}
	m.engine.mu.Lock()
	defer m.engine.mu.Unlock()
	m.history, m.pending, m.data, m.newest = m.engine.histories[p.Path], nil, nil, ""
	return nil
}

func (m *engineModel) SaveWeightsForSampler(ctx context.Context, p tinker.SaveWeightsParams) (string, error) {
	path, err := m.TrainingClient.SaveWeightsForSampler(ctx, p)
	if err != nil {
		return "", err
	}
	m.engine.mu.Lock()
	defer m.engine.mu.Unlock()
	m.newest = path
	m.engine.models[path] = m
	return path, nil
}

// engineSampler samples one snapshot.
type engineSampler struct {
	tinker.SamplingClient

	engine *Engine
	path   string
	model  *engineModel // nil for a checkpoint
}

func (s *engineSampler) Sample(ctx context.Context, p tinker.SampleParams) (tinker.SampleResult, error) {
	if s.engine.cfg.NewestOnly && s.model != nil {
		if err := s.begin(); err != nil {
			return tinker.SampleResult{}, err
		}
		defer s.end()
	}
	return s.SamplingClient.Sample(ctx, p)
}

func (s *engineSampler) begin() error {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	if s.model.newest != s.path {
		return s.engine.violation("a sample of %s, which is no longer its model's weights", s.path)
	}
	s.model.samples++
	return nil
}

func (s *engineSampler) end() {
	s.engine.mu.Lock()
	defer s.engine.mu.Unlock()
	s.model.samples--
}

// Keeper is an engine that cannot unload models.
type Keeper struct{ tinker.Service }

// CreateModel implements [tinker.Service]. Unload of its client is agl.ErrNotFound.
func (k Keeper) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	client, err := k.Service.CreateModel(ctx, p)
	return keptModel{client}, err
}

type keptModel struct{ tinker.TrainingClient }

func (keptModel) Unload(context.Context) error { return agl.Errorf(agl.CodeNotFound, "no such call") }
