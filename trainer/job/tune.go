package job

import (
	"context"
	"errors"
	"fmt"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
)

// tune fine-tunes on rollouts.
func (l *learner) tune(ctx context.Context, weights string, in agl.AlgorithmInput) (err error) {
	file := l.cfg.File
	c := file.Algorithm.SFT.Config
	if from := file.Algorithm.SFT.From; from != nil {
		stored, done, opening := l.cfg.stored(ctx, from)
		if opening != nil {
			return fmt.Errorf("algorithm.sft.from: %w", opening)
		}
		defer func() { err = errors.Join(err, done()) }()
		c.From = stored
	}
	c.Service, c.Model, c.InitialWeights = l.engine.Service, l.model(), weights
	c.Publisher, c.Flusher, c.Rollout, c.Seed = l.publisher(), l.flusher(), file.Agent.Rollout, file.Seed
	c.OutDir, c.Logger = l.outDir, l.cfg.Logger
	if file.Proxy != nil && c.Validation.Sampling == nil {
		c.Validation.Sampling = file.Proxy.ValSampling
	}
	l.showTuning(&c)
	if l.sft, err = sft.New(c); err != nil {
		return err
	}
	return l.sft.Run(ctx, in)
}

// lossLines is the number of steps per line of progress: they take milliseconds on
// a small model.
const lossLines = 100

// showTuning tells the display what goes on.
func (l *learner) showTuning(c *sft.Config) {
	c.Progress = algorithm.Progress{OnRollouts: l.display.OnRollouts, OnValidation: l.display.OnValidation}
	c.Progress.OnStart = func(s algorithm.Start) {
		if s.Step > 0 {
			l.display.OnNotice(fmt.Sprintf("resumes after step %d of %d", s.Step, s.Steps))
		}
	}
	c.OnStep = func(r sft.Report) {
		if s := r.Selected; s != nil {
			l.display.OnNotice(fmt.Sprintf("round %d learns from %d of %d rollouts, of %d tasks: mean reward %.3f of all, %.3f of those",
				r.Round, s.Kept, s.Rollouts, s.Tasks, s.RewardMean, s.KeptMean))
		}
		if r.Updates > 0 && (r.Step%lossLines == 0 || r.Step == r.Steps) {
			l.display.OnNotice(fmt.Sprintf("step %d/%d  loss %.3f", r.Step, r.Steps, r.Loss))
		}
	}
}
