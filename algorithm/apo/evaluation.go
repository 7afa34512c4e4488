package apo

import (
	"context"
	"errors"
	"fmt"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/internal/rawjson"
)

// batch is rollouts of one candidate.
type batch struct {
	key   string // place in the journal
	stage string // what it is for, one of the constants below
	// place, with a task's index, is what the seeds of the rollouts are made of:
	// candidates that are compared have the same.
	place     []int
	candidate *Candidate
	mode      agl.Mode
	data      agl.Dataset
	tasks     []int // indices in data
	samples   int   // rollouts of each task
}

// The stages, of which a rollout's metadata name one.
const (
	stageGradient   = "gradient"
	stageValidation = "validation"
	stageFull       = "full"
	stageFinal      = "final"
)

// rolloutTag is what a rollout's metadata say of the search.
type rolloutTag struct {
	Run   string `json:"run"`
	Stage string `json:"stage"`
}

// try returns the scores of a batch, by running it unless the journal has it.
func (s *search) try(ctx context.Context, b batch) (trial, error) {
	if t, ok := s.journal.trial(b.key); ok {
		return t, nil
	}
	_, t, err := s.run(ctx, b)
	return t, err
}

// run runs a batch, journals its scores, and returns them with the episodes.
func (s *search) run(ctx context.Context, b batch) ([]algorithm.Episode, trial, error) {
	episodes, err := s.episodes(ctx, b)
	if err != nil {
		return nil, trial{}, err
	}
	t := trial{Scores: make([]agl.Null[float64], len(b.tasks)), Rollouts: len(episodes), Masked: map[algorithm.Mask]int{}}
	for i := range b.tasks {
		var rewards []float64
		for k := range b.samples {
			reward, mask := episodes[i*b.samples+k].Score()
			if mask != "" {
				t.Masked[mask]++
				continue
			}
			rewards = append(rewards, reward)
		}
		if rewards != nil {
			t.Scores[i] = agl.Some(meanOf(rewards))
		}
	}
	return episodes, t, s.journal.put(entry{Key: b.key, Trial: &t})
}

// episodes runs a batch. Rollouts that do not finish within Config.BatchTimeout
// have timed out.
func (s *search) episodes(ctx context.Context, b batch) ([]algorithm.Episode, error) {
	rollouts, err := s.rollouts(b)
	if err != nil {
		return nil, err
	}
	out := make([]algorithm.Episode, len(rollouts))
	for i := range out {
		out[i] = algorithm.Episode{
			Rollout: agl.Rollout{Input: rollouts[i].Input, Status: agl.RolloutCancelled},
			Outcome: agl.Outcome{Kind: agl.OutcomeTimeout, Message: "the batch of rollouts did not finish in time"},
		}
	}
	batchCtx, done := context.WithTimeout(ctx, s.cfg.BatchTimeout)
	defer done()
	for group, err := range algorithm.Rollouts(batchCtx, algorithm.Batch{
		Store: s.in.Store, Rollouts: rollouts, Flusher: s.cfg.Flusher, Logger: s.cfg.Logger,
	}) {
		switch {
		case err == nil:
			out[group.Index] = group.Episodes[0]
		case ctx.Err() == nil && errors.Is(batchCtx.Err(), context.DeadlineExceeded):
			s.cfg.Logger.WarnContext(ctx, "rollouts did not finish in time and were cancelled", "stage", b.stage,
				"resources", b.candidate.ResourcesID, "timeout", s.cfg.BatchTimeout)
			return out, nil
		default:
			return nil, fmt.Errorf("%s rollouts of %s: %w", b.stage, b.candidate.ResourcesID, err)
		}
	}
	return out, nil
}

func (s *search) rollouts(b batch) ([]agl.EnqueueRollout, error) {
	tag, err := json.Marshal(rolloutTag{Run: s.journal.header.Run, Stage: b.stage})
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	out := make([]agl.EnqueueRollout, 0, len(b.tasks)*b.samples)
	for _, index := range b.tasks {
		task, err := b.data.Task(index)
		if err != nil {
			return nil, fmt.Errorf("read %s dataset: %w", b.mode, err)
		}
		for k := range b.samples {
			place := append(append([]int{}, b.place...), index, k)
			meta := rawjson.Set(jsontext.Value(tag), algorithm.MetadataIndex, strconv.AppendInt(nil, int64(index), 10))
			meta = rawjson.Set(meta, algorithm.MetadataSeed, strconv.AppendUint(nil, algorithm.DeriveSeed(s.cfg.Seed, b.stage, place...), 10))
			config := s.cfg.Rollout
			out = append(out, agl.EnqueueRollout{
				Input: task, Mode: b.mode, ResourcesID: agl.Some(b.candidate.ResourcesID), Config: &config, Metadata: meta,
			})
		}
	}
	return out, nil
}

// cancelLeftovers cancels the rollouts of this search that a process before this
// one left unfinished in a store that outlived it.
func (s *search) cancelLeftovers(ctx context.Context) error {
	page, err := s.in.Store.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: []agl.RolloutStatus{
		agl.RolloutQueuing, agl.RolloutRequeuing, agl.RolloutPreparing, agl.RolloutRunning,
	}})
	if err != nil {
		return fmt.Errorf("look for rollouts of the interrupted run: %w", err)
	}
	var ids []string
	for _, rollout := range page.Items {
		var tag rolloutTag
		if rawjson.Unmarshal(rollout.Metadata, &tag) == nil && tag.Run == s.journal.header.Run {
			ids = append(ids, rollout.RolloutID)
		}
	}
	if err := algorithm.Cancel(ctx, s.in.Store, ids); err != nil {
		return fmt.Errorf("cancel rollouts of the interrupted run: %w", err)
	}
	return nil
}
