package job

import (
	"context"
	"path/filepath"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/runfile"
)

// warmStartDir holds the checkpoints of the warm start in the folder of a run.
const warmStartDir = "warmstart"

// learner is the algorithm of the file, with the parts of the run in its hands.
type learner struct {
	cfg     Config
	outDir  string
	engine  *engine.Engine // nil when nothing trains weights
	proxy   *trainer.Proxy // nil when no model is called
	display display.Display

	// One of these is made when Run gets to it.
	grpo     *grpo.GRPO
	sft      *sft.SFT
	apo      *apo.APO
	baseline *baseline.Baseline
}

var _ agl.Algorithm = (*learner)(nil)

// Run implements [agl.Algorithm].
func (l *learner) Run(ctx context.Context, in agl.AlgorithmInput) error {
	weights, err := l.initialWeights(ctx)
	if err != nil {
		return err
	}
	if l.cfg.File.Algorithm.SFT != nil {
		return l.tune(ctx, weights, in)
	}
	algorithm, err := l.algorithm(weights, in)
	if err != nil {
		return err
	}
	if l.engine != nil && l.grpo == nil { // which publishes by itself
		if err := l.serve(ctx, weights); err != nil {
			return err
		}
	}
	return algorithm.Run(ctx, in)
}

// model describes the model that is trained.
func (l *learner) model() tinker.CreateModelParams {
	p := tinker.CreateModelParams{Seed: l.cfg.File.ModelSeed()}
	if t := l.cfg.File.Engine.Tinker; t != nil {
		p.BaseModel, p.LoRARank = t.Model, t.LoRARank
	}
	return p
}

// initialWeights trains the first weights, or takes those of the file; where there
// are neither, the base model is what to start from.
func (l *learner) initialWeights(ctx context.Context) (weights string, err error) {
	w := l.cfg.File.Engine.WarmStart()
	if w == nil {
		return l.fileWeights(), nil
	}
	return l.engine.WarmStart(ctx, engine.WarmStart{
		Path: w.Path, Steps: w.Steps, Batch: w.Batch, Schedule: w.Schedule, Model: l.model(), Seed: l.cfg.File.Seed,
		OutDir: l.sub(warmStartDir), OnStep: l.display.OnWarmStart, Logger: l.cfg.Logger,
	})
}

// fileWeights are the first weights that the file names.
func (l *learner) fileWeights() string {
	if e := l.cfg.File.Engine; e != nil && e.Tinker != nil {
		return e.Tinker.Weights
	}
	return ""
}

// serve serves weights that nobody trains any further; none are those of a new
// model.
func (l *learner) serve(ctx context.Context, weights string) error {
	snapshot, err := l.engine.Snapshot(ctx, l.model(), weights)
	if err != nil {
		return err
	}
	return l.publisher().Publish(ctx, algorithm.Publication{Snapshot: snapshot, Version: "initial"})
}

func (l *learner) publisher() algorithm.Publisher {
	return l.engine.Publisher(l.proxy, l.cfg.otherModels()...)
}

// sub is a folder in that of the run; nothing is kept where the run has none.
func (l *learner) sub(name string) string {
	if l.outDir == "" {
		return ""
	}
	return filepath.Join(l.outDir, name)
}

// flusher is the proxy, if there is one.
func (l *learner) flusher() algorithm.Flusher {
	if l.proxy == nil {
		return nil
	}
	return l.proxy
}

// algorithm makes the algorithm of the file.
func (l *learner) algorithm(weights string, in agl.AlgorithmInput) (_ agl.Algorithm, err error) {
	file := l.cfg.File
	switch {
	case file.Algorithm.GRPO != nil:
		c := *file.Algorithm.GRPO
		c.Service, c.Model, c.InitialWeights = l.engine.Service, l.model(), weights
		c.Publisher, c.Flusher, c.Rollout, c.Seed = l.publisher(), l.flusher(), file.Agent.Rollout, file.Seed
		c.OutDir, c.Logger = l.outDir, l.cfg.Logger
		c.Progress, c.OnStep = display.Progress(l.display), l.display.OnStep
		if file.Proxy != nil && c.Validation.Sampling == nil {
			c.Validation.Sampling = file.Proxy.ValSampling
		}
		l.grpo, err = grpo.New(c)
		return l.grpo, err
	case file.Algorithm.APO != nil:
		c := file.Algorithm.APO.Config
		c.Flusher, c.Rollout, c.Seed = l.flusher(), file.Agent.Rollout, file.Seed
		c.OutDir, c.OnRound, c.Logger = l.outDir, l.display.OnRound, l.cfg.Logger
		if err := l.models(&c, file.Algorithm.APO, in.InitialResources); err != nil {
			return nil, err
		}
		l.apo, err = apo.New(c)
		return l.apo, err
	default:
		c := *file.Algorithm.Baseline
		c.Flusher, c.Rollout = l.flusher(), file.Agent.Rollout
		c.OutDir, c.OnTask, c.Logger = l.outDir, l.display.OnTask, l.cfg.Logger
		if l.proxy != nil {
			c.Adapter = adapter.ProxyTriplets{}
		}
		l.baseline, err = baseline.New(c)
		return l.baseline, err
	}
}

// models makes the models that criticise and rewrite prompts.
func (l *learner) models(c *apo.Config, file *runfile.APO, resources agl.Resources) (err error) {
	if c.GradientModel, err = l.endpoint("algorithm.apo.gradient_model", file.Gradient, resources); err != nil {
		return err
	}
	if file.Edit != nil {
		c.EditModel, err = l.endpoint("algorithm.apo.edit_model", *file.Edit, resources)
	}
	return err
}

// endpoint reaches a model: one of the run's own proxy unless it has a URL.
func (l *learner) endpoint(field string, c apo.EndpointConfig, resources agl.Resources) (_ apo.Model, err error) {
	key := c.APIKey
	if c.BaseURL == "" {
		llm, ok := proxyOf(resources)
		if !ok {
			return nil, agl.Errorf(agl.CodeInvalid, "%s: no base_url is given, and the run has no proxy whose model it could be", field)
		}
		c.BaseURL = llm.Endpoint
		if key == "" {
			key = l.proxy.Token()
		}
	}
	if c.APIKey, err = l.cfg.secret(field+".api_key", key); err != nil {
		return nil, err
	}
	return apo.NewEndpoint(c)
}

// proxyOf finds the run's proxy among the resources.
func proxyOf(resources agl.Resources) (agl.ProxyLLM, bool) {
	for _, r := range resources {
		if llm, ok := r.Resource.(agl.ProxyLLM); ok {
			return llm, true
		}
	}
	return agl.ProxyLLM{}, false
}
