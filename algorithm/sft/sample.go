package sft

import (
	"context"
	"fmt"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// rolloutTag is the metadata of a rollout of a round.
type rolloutTag struct {
	Algorithm string `json:"algorithm"`
	Run       string `json:"run"`
	Round     int    `json:"round"` // counted from 1; 0 is before the first
	Sample    int    `json:"sample"`
	Index     int    `json:"index"` // algorithm.MetadataIndex
	Seed      uint64 `json:"seed"`  // algorithm.MetadataSeed
}

// sample runs the rollouts of a round and chooses among them; nil when there is
// nothing to learn from.
func (r *tuning) sample(ctx context.Context, round int) (*Shuffled, error) {
	rollouts, err := r.rollouts(round)
	if err != nil {
		return nil, err
	}
	groups := make([][]algorithm.Episode, len(rollouts)/r.cfg.Samples)
	done := 0
	for finished, err := range algorithm.Rollouts(ctx, algorithm.Batch{
		Store: r.in.Store, Rollouts: rollouts, GroupSize: r.cfg.Samples, Flusher: r.cfg.Flusher, Logger: r.cfg.Logger,
	}) {
		if err != nil {
			return nil, err
		}
		groups[finished.Index] = finished.Episodes
		done += len(finished.Episodes)
		r.cfg.OnRollouts(agl.ModeTrain, round+1, done, len(rollouts))
	}
	p := r.picker()
	for _, episodes := range groups { // in the order of the tasks, whatever came first
		for i := range episodes {
			p.add(&episodes[i])
		}
	}
	if err := algorithm.Trainable(ctx, "round", p.lacks, r.cfg.Logger); err != nil {
		return nil, err
	}
	data, selected := p.data()
	r.selected = &selected
	r.state.Totals.add(selected.Rollouts, selected.Masked)
	if len(data) == 0 {
		r.cfg.Logger.WarnContext(ctx, "no rollout of the round can be learned from",
			"round", round+1, "rollouts", selected.Rollouts, "rejected", selected.Rejected, "masked", selected.Masked)
		return nil, nil //nolint:nilnil // nothing is no error: the next round draws others
	}
	return NewShuffled(data, r.cfg.Batch, algorithm.DeriveSeed(r.cfg.Seed, "round", round))
}

// rollouts describes Samples rollouts of each task of a round.
func (r *tuning) rollouts(round int) ([]agl.EnqueueRollout, error) {
	n := r.in.Train.Len()
	tasks := r.cfg.Tasks
	if tasks == 0 || tasks > n {
		tasks = n
	}
	order := algorithm.NewShuffle(n, r.cfg.Seed)
	list := make([]agl.EnqueueRollout, 0, tasks*r.cfg.Samples)
	for i := range tasks {
		index := order.At(round*tasks + i)
		input, err := r.in.Train.Task(index)
		if err != nil {
			return nil, fmt.Errorf("read train dataset: %w", err)
		}
		for s := range r.cfg.Samples {
			tag, err := json.Marshal(rolloutTag{
				Algorithm: "sft", Run: r.state.Run, Round: round + 1, Sample: s, Index: index,
				Seed: algorithm.DeriveSeed(r.cfg.Seed, "sample", round, i, s),
			})
			if err != nil {
				return nil, fmt.Errorf("rollout metadata: %w", err)
			}
			config := r.cfg.Rollout
			list = append(list, agl.EnqueueRollout{
				Input: input, Mode: agl.ModeTrain, ResourcesID: agl.Some(r.state.ResourcesID), Config: &config, Metadata: tag,
			})
		}
	}
	return list, nil
}
