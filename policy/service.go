package policy

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// Service is an in-process [tinker.Service]. It is safe for concurrent use and has no goroutines between calls.
//
// Checkpoints (SaveWeights) are files in Config.Dir, and later processes can load them or sample from them. If several
// processes share the directory, the path of a checkpoint may have another model id than Info reports. Sampler snapshots
// (SaveWeightsForSampler) are copies in memory, 0.9 MB each at the default size. They live until DeleteWeights or the end
// of the process; a sampling client keeps its own. With Config.SaveSnapshots, snapshots that are not transient are files
// too, and memory holds only those in use.
type Service struct {
	cfg   Config
	lay   *layout
	kn    kernel
	saved *savedWeights
	spare *sync.Pool
	base  func() *weights // makes the base model at its first call
}

var _ tinker.Service = (*Service)(nil)

// NewService returns an engine. An invalid Config is agl.ErrInvalid.
func NewService(cfg Config) (*Service, error) {
	cfg, err := cfg.Checked()
	if err != nil {
		return nil, err
	}
	s := &Service{
		cfg: cfg, lay: newLayout(cfg.shape()),
		kn: cfg.kernel(),
	}
	s.spare = &sync.Pool{New: func() any { return newDecoder(s.lay, s.kn) }}
	s.saved = &savedWeights{lay: s.lay, files: newArchive(cfg.Dir), saveSnapshots: cfg.SaveSnapshots, snapshots: map[tinker.Path]*weights{}}
	flat := func() []float32 { return s.lay.initialize(0) }
	if cfg.Base != "" {
		base, err := readWeights(cfg.Base, cfg.shape())
		if err != nil {
			return nil, fmt.Errorf("the base model: %w", err)
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
	id, err := s.saved.files.reserve(prefix)
	if err != nil {
		return nil, err
	}
	var flat []float32
	if s.cfg.Base == "" {
		flat = s.lay.initialize(p.Seed)
	} else {
		flat = slices.Clone(s.base().flat)
	}
	return &trainingClient{
		id: id, cfg: s.cfg, size: s.lay.size, saved: s.saved, turn: semaphore.NewWeighted(1), trainer: newTrainer(s.cfg, s.lay, flat),
	}, nil
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
	w, err := s.saved.open(path)
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
	return s.saved.remove(path)
}
