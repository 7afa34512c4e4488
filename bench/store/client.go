package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// clientWorker does the same work through an agl.Store: spans in batches, long polls, no request for a sequence id.
type clientWorker struct{ store agl.Store }

func (w *clientWorker) setup(ctx context.Context) error {
	var r agl.Resources
	if err := rawjson.Unmarshal([]byte(benchResources), &r); err != nil {
		return err
	}
	_, err := w.store.AddResources(ctx, agl.AddResourcesParams{Resources: r})
	return err
}

func (w *clientWorker) enqueue(ctx context.Context, t *timings, index int) error {
	began := time.Now()
	_, err := w.store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: taskInput(index), Mode: agl.ModeTrain}}})
	t.add("enqueue", began)
	return err
}

func (w *clientWorker) rollout(ctx context.Context, t *timings, runner int) (string, error) {
	began := time.Now()
	taken, err := w.store.DequeueRollouts(ctx, agl.DequeueRolloutsParams{
		Limit: 1, WorkerID: agl.Some("runner-" + strconv.Itoa(runner)), Wait: time.Second,
	})
	if err != nil {
		return "", fmt.Errorf("dequeue: %w", err)
	}
	t.add("dequeue", began)
	if len(taken.Rollouts) == 0 {
		return "", nil
	}
	r := taken.Rollouts[0]
	began = time.Now()
	if _, err := w.store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: r.ResourcesID.V}); err != nil {
		return "", fmt.Errorf("get resources: %w", err)
	}
	t.add("get resources", began)
	spans := make([]agl.Span, spansPerRollout)
	for n := range spans {
		spans[n] = benchSpan(r.RolloutID, r.Attempt.AttemptID, n)
	}
	began = time.Now()
	stored, err := w.store.AddSpans(ctx, agl.AddSpansParams{Spans: spans, IssueSequenceIDs: true})
	if err != nil {
		return "", fmt.Errorf("add spans: %w", err)
	}
	if len(stored.Stored) != spansPerRollout {
		return "", errors.New("add spans: not all were stored")
	}
	t.add("add spans", began)
	began = time.Now()
	_, err = w.store.UpdateAttempt(ctx, agl.UpdateAttemptParams{
		RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: new(agl.AttemptSucceeded),
	})
	if err != nil {
		return "", fmt.Errorf("update attempt: %w", err)
	}
	t.add("update attempt", began)
	return r.RolloutID, nil
}

func (w *clientWorker) collect(ctx context.Context, t *timings, id string) error {
	began := time.Now()
	done, err := w.store.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{id}})
	if err != nil {
		return fmt.Errorf("wait: %w", err)
	}
	if len(done) != 1 || done[0].Status != agl.RolloutSucceeded {
		return fmt.Errorf("wait: rollout %s did not succeed", id)
	}
	t.add("wait", began)
	began = time.Now()
	page, err := w.store.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: id, AttemptID: agl.LatestAttempt})
	if err != nil {
		return fmt.Errorf("query spans: %w", err)
	}
	t.add("query spans", began)
	return verifySpans(id, page.Items)
}
