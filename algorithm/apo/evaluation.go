package apo

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// evaluation describes rollouts of one candidate.
type evaluation struct {
	key   string // in the journal
	stage string // the purpose, one of the constants below
	// place and a task's index determine the seeds of the rollouts. Candidates that are compared have the same.
	place     []int
	candidate *Candidate
	mode      agl.Mode
	data      agl.Dataset
	tasks     []int // indices in data
	samples   int   // rollouts of each task
}

// The stages. Rollouts name theirs in their metadata.
const (
	stageGradient   = "gradient"
	stageValidation = "validation"
	stageFull       = "full"
	stageFinal      = "final"
)

// evaluator runs evaluations.
type evaluator struct {
	cfg     Config
	session *algorithm.Session
	journal *journal
}

// runID is the part of the run's name in the ids of its resources.
func (v evaluator) runID() string { return strings.TrimPrefix(v.session.Run, "apo-") }

// scores returns the scores of an evaluation. It runs the rollouts unless the journal has the scores.
func (v evaluator) scores(ctx context.Context, e evaluation) (evaluated, error) {
	if s := v.journal.get(e.key).Scores; s != nil {
		return *s, nil
	}
	_, s, err := v.run(ctx, e)
	return s, err
}

// run runs the rollouts of an evaluation, journals the scores, and returns them with the episodes.
func (v evaluator) run(ctx context.Context, e evaluation) ([]algorithm.Episode, evaluated, error) {
	episodes, err := v.episodes(ctx, e)
	if err != nil {
		return nil, evaluated{}, err
	}
	s := evaluated{ByTask: make([]agl.Null[float64], len(e.tasks)), Rollouts: len(episodes), Masked: map[algorithm.Mask]int{}}
	for i := range e.tasks {
		var rewards []float64
		for k := range e.samples {
			reward, mask := episodes[i*e.samples+k].Score()
			if mask != "" {
				s.Masked[mask]++
				continue
			}
			rewards = append(rewards, reward)
		}
		if rewards != nil {
			s.ByTask[i] = agl.Some(meanOf(rewards))
		}
	}
	return episodes, s, v.journal.put(entry{Key: e.key, Scores: &s})
}

// episodes runs the rollouts of an evaluation. Those that do not finish within Config.BatchTimeout get the outcome timeout.
func (v evaluator) episodes(ctx context.Context, e evaluation) ([]algorithm.Episode, error) {
	rollouts, err := v.rollouts(e)
	if err != nil {
		return nil, err
	}
	out := make([]algorithm.Episode, len(rollouts))
	for i := range out {
		out[i] = algorithm.Episode{
			Rollout: agl.Rollout{Input: rollouts[i].Input, Status: agl.RolloutCancelled},
			Outcome: agl.Outcome{Kind: agl.OutcomeTimeout, Message: "the rollouts of the evaluation did not finish in time"},
		}
	}
	limited, done := context.WithTimeout(ctx, v.cfg.BatchTimeout)
	defer done()
	for group, err := range algorithm.Rollouts(limited, v.session.Params(rollouts, 1)) {
		switch {
		case err == nil:
			out[group.Index] = group.Episodes[0]
		case ctx.Err() == nil && errors.Is(limited.Err(), context.DeadlineExceeded):
			v.cfg.Logger.WarnContext(ctx, "rollouts did not finish in time and were cancelled", "stage", e.stage,
				"resources", e.candidate.ResourcesID, "timeout", v.cfg.BatchTimeout)
			return out, nil
		default:
			return nil, fmt.Errorf("%s rollouts of %s: %w", e.stage, e.candidate.ResourcesID, err)
		}
	}
	return out, nil
}

func (v evaluator) rollouts(e evaluation) ([]agl.EnqueueRollout, error) {
	out := make([]agl.EnqueueRollout, 0, len(e.tasks)*e.samples)
	for _, index := range e.tasks {
		task, err := e.data.Task(index)
		if err != nil {
			return nil, fmt.Errorf("read %s dataset: %w", e.mode, err)
		}
		for k := range e.samples {
			place := append(append([]int{}, e.place...), index, k)
			r, err := v.session.Rollout(task, e.mode, e.candidate.ResourcesID, algorithm.Tag{
				Stage: e.stage, Sample: k, Index: index, Seed: algorithm.DeriveSeed(v.cfg.Seed, e.stage, place...),
			})
			if err != nil {
				return nil, err
			}
			out = append(out, r)
		}
	}
	return out, nil
}
