package policy

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// Service is the embedded engine: an in-process [tinker.Service]. It is safe for concurrent use and holds no
// goroutines between calls.
//
// Checkpoints (SaveWeights) are files in Config.Dir and can be loaded, or sampled, by a later process. Where
// several processes share the directory, a checkpoint's path may have another model id than Info says.
// Sampler snapshots (SaveWeightsForSampler) are copies in memory that cost 0.9 MB each at the default size;
// they live until DeleteWeights or the end of the process, and sampling clients keep theirs beyond that. With
// Config.SaveSnapshots those that are not transient are files as well, and memory holds those that are in use.
type Service struct {
	cfg   Config
	lay   *layout
	kn    kernel
	files archive
	spare *sync.Pool

	base func() *weights // made when first asked for

	mu        sync.Mutex
	snapshots map[tinker.Path]*weights // those in memory, which have a path to themselves
	opened    recent                   // of files
}

var (
	_ tinker.Service        = (*Service)(nil)
	_ tinker.TrainingClient = (*model)(nil)
	_ tinker.SamplingClient = (*sampler)(nil)
)

// NewService makes an engine. A Config out of range is agl.CodeInvalid.
func NewService(cfg Config) (*Service, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, lay: newLayout(cfg.shape()),
		kn:        kernel{simd: haveSIMD() && !cfg.portable},
		files:     &memoryArchive{files: map[tinker.Path][]byte{}},
		snapshots: map[tinker.Path]*weights{},
	}
	if cfg.Dir != "" {
		s.files = newDirArchive(cfg.Dir)
	}
	s.spare = newDecoders(s.lay, s.kn)
	flat := func() []float32 { return s.lay.initialize(0) }
	if cfg.Base != "" {
		base, err := readBase(cfg.Base, cfg.shape())
		if err != nil {
			return nil, err
		}
		flat = func() []float32 { return base }
	}
	s.base = sync.OnceValue(func() *weights { return newWeights(s.lay, flat()) })
	return s, nil
}

// Capabilities implements [tinker.Service].
func (s *Service) Capabilities(context.Context) (tinker.Capabilities, error) {
	return tinker.Capabilities{
		Models:             []tinker.ModelSpec{s.cfg.spec()},
		Losses:             tinker.LossNames(),
		ImmutableSnapshots: true,
		SummedLoss:         true,
		OptimizerOptional:  true,
		Deterministic:      true,
	}, nil
}

// CreateModel implements [tinker.Service]. The model's initial weights are those of Config.Base or, without it,
// a function of p.Seed.
func (s *Service) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if p.BaseModel != "" {
		if err := s.checkBase(p.BaseModel); err != nil {
			return nil, err
		}
	}
	prefix := s.cfg.Name
	if s.cfg.Instance != "" {
		prefix += "-" + s.cfg.Instance
	}
	id, err := s.files.reserve(prefix)
	if err != nil {
		return nil, err
	}
	var flat []float32
	if s.cfg.Base == "" {
		flat = s.lay.initialize(p.Seed)
	} else {
		flat = slices.Clone(s.base().flat)
	}
	return &model{service: s, id: id, turn: make(chan struct{}, 1), trainer: newTrainer(s.cfg, s.lay, flat)}, nil
}

// NewSamplingClient implements [tinker.Service]. It opens snapshots, checkpoints and the base model.
func (s *Service) NewSamplingClient(ctx context.Context, p tinker.NewSamplingClientParams) (tinker.SamplingClient, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if p.Path == "" && p.BaseModel != "" {
		if err := s.checkBase(p.BaseModel); err != nil {
			return nil, err
		}
		return s.newSampler(s.base()), nil
	}
	path, err := tinker.ParsePath(p.Path)
	if err != nil {
		return nil, err
	}
	w, err := s.open(path)
	if err != nil {
		return nil, err
	}
	return s.newSampler(w), nil
}

func (s *Service) checkBase(name string) error {
	if name != s.cfg.Name {
		return agl.Errorf(agl.CodeNotFound, "base_model: %q is unknown; this engine has %q", name, s.cfg.Name)
	}
	return nil
}

// inFiles reports whether weights of a kind are kept in the archive.
func (s *Service) inFiles(kind tinker.WeightsKind) bool {
	return kind == tinker.KindCheckpoint || s.cfg.SaveSnapshots
}

// open finds saved weights.
func (s *Service) open(path tinker.Path) (*weights, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.snapshots[path]; w != nil {
		return w, nil
	}
	if !s.inFiles(path.Kind) {
		return nil, unknown(path)
	}
	if w := s.opened.get(path); w != nil {
		return w, nil
	}
	c, err := s.load(path)
	if err != nil {
		return nil, err
	}
	w := newWeights(s.lay, c.flat)
	s.opened.put(path, w)
	return w, nil
}

func (s *Service) newSampler(w *weights) *sampler {
	return &sampler{w: w, spec: s.cfg.spec(), spare: s.spare}
}

// DeleteWeights implements [tinker.Service].
func (s *Service) DeleteWeights(ctx context.Context, p tinker.DeleteWeightsParams) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	path, err := tinker.ParsePath(p.Path)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.snapshots[path] != nil {
		delete(s.snapshots, path)
		return nil
	}
	if !s.inFiles(path.Kind) {
		return unknown(path)
	}
	s.opened.remove(path)
	return s.files.remove(path)
}

// put stores weights in the archive. Who opens them from now on gets these.
func (s *Service) put(path tinker.Path, data []byte, replace bool) (tinker.Path, error) {
	path, err := s.files.put(path, data, replace)
	if replace {
		// Also after an error, which may have come behind the change.
		s.mu.Lock()
		defer s.mu.Unlock()
		s.opened.remove(path)
	}
	return path, err
}

func (s *Service) load(path tinker.Path) (checkpoint, error) {
	data, err := s.files.get(path)
	if err != nil {
		return checkpoint{}, err
	}
	return decodeCheckpoint(path.String(), data, s.cfg.shape())
}

// model is one model in training. Its calls take turns.
type model struct {
	service *Service
	id      string
	turn    chan struct{} // holds one token while a call runs
	trainer *trainer      // nil after Unload
}

// run gives do the trainer, alone.
func (m *model) run(ctx context.Context, do func(t *trainer) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.turn }()
	if m.trainer == nil {
		return agl.Errorf(agl.CodeNotFound, "model: %s is unloaded", m.id)
	}
	return do(m.trainer)
}

// Info implements [tinker.TrainingClient].
func (m *model) Info(ctx context.Context) (tinker.Info, error) {
	info := tinker.Info{ModelID: m.id, Spec: m.service.cfg.spec(), Parameters: m.service.lay.size}
	err := m.run(ctx, func(t *trainer) error {
		info.Step = t.step
		return nil
	})
	return info, err
}

// Forward implements [tinker.TrainingClient].
func (m *model) Forward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	return m.forward(ctx, p, false)
}

// ForwardBackward implements [tinker.TrainingClient]. The loss is the plain sum over positions and data.
func (m *model) ForwardBackward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	return m.forward(ctx, p, true)
}

func (m *model) forward(ctx context.Context, p tinker.ForwardParams, withGrad bool) (res tinker.ForwardResult, err error) {
	if err := m.service.validate(p); err != nil {
		return res, err
	}
	err = m.run(ctx, func(t *trainer) (err error) {
		res, err = t.forward(ctx, p.Data, p.Loss.WithDefaults(), withGrad)
		return err
	})
	if err != nil {
		return tinker.ForwardResult{}, fmt.Errorf("policy: forward: %w", err)
	}
	return res, nil
}

func (s *Service) validate(p tinker.ForwardParams) error {
	if err := p.Loss.Validate(); err != nil {
		return err
	}
	if len(p.Data) == 0 {
		return invalid("data: the batch is empty; at least 1 datum is needed")
	}
	for i := range p.Data {
		d := &p.Data[i]
		if err := d.Validate(p.Loss.Name, s.cfg.Vocab); err != nil {
			return invalid("data[%d]: %w", i, err)
		}
		if len(d.Input) > s.cfg.Context {
			return invalid("data[%d]: input: %d tokens; the context has %d", i, len(d.Input), s.cfg.Context)
		}
	}
	return nil
}

// OptimStep implements [tinker.TrainingClient]. A gradient that is not finite is dropped with
// agl.CodeInvalid, so that it cannot spoil the weights.
func (m *model) OptimStep(ctx context.Context, p tinker.AdamParams) (res tinker.OptimStepResult, err error) {
	if err := p.Validate(); err != nil {
		return res, err
	}
	err = m.run(ctx, func(t *trainer) (err error) {
		res.GradNorm, err = t.adam(p)
		res.Step = t.step
		return err
	})
	return res, err
}

// SaveWeights implements [tinker.TrainingClient].
func (m *model) SaveWeights(ctx context.Context, p tinker.SaveWeightsParams) (string, error) {
	path := tinker.Path{Model: m.id, Kind: tinker.KindCheckpoint, Name: p.Name}
	if err := tinker.ValidateName(p.Name); err != nil {
		return "", err
	}
	err := m.run(ctx, func(t *trainer) error {
		data, err := t.encode()
		if err != nil {
			return err
		}
		path, err = m.service.put(path, data, p.Overwrite)
		return err
	})
	if err != nil {
		return "", err
	}
	return path.String(), nil
}

// LoadWeights implements [tinker.TrainingClient]. A damaged checkpoint is tinker.ErrDamaged.
func (m *model) LoadWeights(ctx context.Context, p tinker.LoadWeightsParams) error {
	path, err := tinker.ParsePath(p.Path)
	if err != nil {
		return err
	}
	if path.Kind != tinker.KindCheckpoint {
		return invalid("path: %q is a sampler snapshot; only %s paths can be loaded for training", p.Path, tinker.KindCheckpoint)
	}
	return m.run(ctx, func(t *trainer) error {
		c, err := m.service.load(path)
		if err != nil {
			return err
		}
		if c.WeightsOnly && p.WithOptimizer {
			return invalid("path: %v has no optimizer state", path)
		}
		t.restore(c, p.WithOptimizer)
		return nil
	})
}

// SaveWeightsForSampler implements [tinker.TrainingClient].
func (m *model) SaveWeightsForSampler(ctx context.Context, p tinker.SaveWeightsParams) (string, error) {
	path := tinker.Path{Model: m.id, Kind: tinker.KindSampler, Name: p.Name}
	if err := tinker.ValidateName(p.Name); err != nil {
		return "", err
	}
	err := m.run(ctx, func(t *trainer) (err error) {
		path, err = m.service.publish(path, t, p)
		return err
	})
	if err != nil {
		return "", err
	}
	return path.String(), nil
}

// publish keeps a snapshot, in a file or in memory. Only its model, which calls it, has the path.
func (s *Service) publish(path tinker.Path, t *trainer, p tinker.SaveWeightsParams) (tinker.Path, error) {
	s.mu.Lock()
	held := s.snapshots[path] != nil
	s.mu.Unlock()
	if held && !p.Overwrite {
		return path, taken(path)
	}
	if s.cfg.SaveSnapshots && !p.Transient {
		data, err := encodeWeights(t.w.shape, t.w.flat)
		if err != nil {
			return path, err
		}
		return s.put(path, data, p.Overwrite)
	}
	w := t.snapshot()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots[path] = w
	return path, nil
}

// Unload implements [tinker.TrainingClient].
func (m *model) Unload(ctx context.Context) error {
	return m.run(ctx, func(*trainer) error {
		m.trainer = nil
		return nil
	})
}
