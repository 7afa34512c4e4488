package chaos

import (
	"context"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/test/chaos/history"
)

// algorithm is a simulated algorithm: it enqueues rollouts, waits for them and reads
// them, writes resources, and changes and cancels rollouts.
type algorithm struct {
	*load

	name      string
	resources string
	random    *rand.Rand
	tasks     int
	open      []string // unfinished rollouts, the oldest first
}

func newAlgorithm(l *load, i int) *algorithm {
	name := "algorithm-" + strconv.Itoa(i)
	return &algorithm{load: l, name: name, resources: "resources-" + strconv.Itoa(i), random: l.random(2, i)}
}

// run works until no more is to be enqueued.
func (a *algorithm) run(ctx context.Context) {
	for a.enqueueing.Err() == nil {
		if len(a.open) < ahead {
			a.enqueue(ctx)
		}
		switch p := a.random.Float64(); {
		case p < 0.10:
			a.updateResources(ctx)
		case p < 0.15:
			a.cancel(ctx, a.pick())
		case p < 0.25:
			a.updateRollout(ctx, a.pick())
		case p < 0.40:
			a.read(ctx, a.pick())
		case p < 0.60 || len(a.open) >= ahead:
			a.wait(ctx)
		}
	}
}

func (a *algorithm) pick() string {
	if len(a.open) == 0 {
		return ""
	}
	return a.open[a.random.IntN(len(a.open))]
}

// client returns the patient client, and now and then the hasty one.
func (a *algorithm) client() *client.Client {
	if a.random.Float64() < 0.2 {
		return a.hasty
	}
	return a.patient
}

// task returns a rollout to enqueue, of one of a few kinds.
func (a *algorithm) task() (history.Task, agl.EnqueueRollout) {
	a.tasks++
	t := history.Task{ID: a.name + "/" + strconv.Itoa(a.tasks), MaxAttempts: 3, Unresponsive: int64(unresponsive)}
	config := agl.RolloutConfig{MaxAttempts: 3, UnresponsiveSeconds: agl.Some(unresponsive.Seconds())}
	switch a.random.IntN(4) {
	case 0:
		t.MaxAttempts, config.MaxAttempts = 1, 1
	case 1:
		config.RetryCondition = []agl.AttemptStatus{agl.AttemptUnresponsive, agl.AttemptTimeout, agl.AttemptFailed}
		t.Timeout, config.TimeoutSeconds = int64(2*unresponsive), agl.Some(2*unresponsive.Seconds())
	default:
		config.RetryCondition = []agl.AttemptStatus{agl.AttemptUnresponsive}
	}
	for _, status := range config.RetryCondition {
		t.Retry = append(t.Retry, string(status))
	}
	return t, agl.EnqueueRollout{Input: jsontext.Value(`{"task":"` + t.ID + `"}`), Config: &config}
}

func (a *algorithm) enqueue(ctx context.Context) {
	var args history.Args
	p := agl.EnqueueRolloutsParams{}
	for range 1 + a.random.IntN(6) {
		t, r := a.task()
		args.Tasks = append(args.Tasks, t)
		p.Rollouts = append(p.Rollouts, r)
	}
	if a.random.IntN(2) == 0 { // otherwise the client makes one up
		p.IdempotencyKey = a.name + "-" + strconv.Itoa(a.tasks)
	}
	_ = a.recorder.Do(a.name, history.Enqueue, args, func() (reply history.Reply, err error) {
		made, err := a.client().EnqueueRollouts(ctx, p)
		for i := range made {
			reply.Rollouts = append(reply.Rollouts, sawRollout(&made[i], nil))
			a.open = append(a.open, made[i].RolloutID)
		}
		return reply, err
	})
}

func (a *algorithm) updateResources(ctx context.Context) {
	args := history.Args{Resources: a.resources, Mark: a.recorder.Mark()}
	_ = a.recorder.Do(a.name, history.UpdateResource, args, func() (history.Reply, error) {
		u, err := a.client().UpdateResources(ctx, agl.UpdateResourcesParams{ResourcesID: args.Resources, Resources: agl.Resources{
			{Name: "prompt", Resource: agl.PromptTemplate{Template: strconv.FormatInt(args.Mark, 10), Engine: agl.PromptFString}},
		}})
		return history.Reply{Version: u.Version}, err
	})
}

func (a *algorithm) cancel(ctx context.Context, rollout string) {
	if rollout == "" {
		return
	}
	_ = a.recorder.Do(a.name, history.Cancel, history.Args{Rollout: rollout}, func() (history.Reply, error) {
		_, err := a.client().CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: rollout})
		return history.Reply{}, err
	})
}

func (a *algorithm) updateRollout(ctx context.Context, rollout string) {
	if rollout == "" {
		return
	}
	args := history.Args{Rollout: rollout, Mark: a.recorder.Mark()}
	_ = a.recorder.Do(a.name, history.UpdateRollout, args, func() (history.Reply, error) {
		_, err := a.client().UpdateRollout(ctx, agl.UpdateRolloutParams{RolloutID: rollout, Metadata: mark(args.Mark)})
		return history.Reply{}, err
	})
}

func (a *algorithm) read(ctx context.Context, rollout string) {
	if rollout == "" {
		return
	}
	_ = a.recorder.Do(a.name, history.Read, history.Args{Rollout: rollout}, func() (history.Reply, error) {
		r, err := a.patient.GetRollout(ctx, agl.GetRolloutParams{RolloutID: rollout})
		return history.Reply{Rollouts: []history.Rollout{sawRollout(&r.Rollout, r.Attempt)}}, err
	})
	a.readSpans(ctx, rollout)
}

func (a *algorithm) readSpans(ctx context.Context, rollout string) {
	_ = a.recorder.Do(a.name, history.ReadSpans, history.Args{Rollout: rollout}, func() (reply history.Reply, err error) {
		page, err := a.patient.QuerySpans(ctx, agl.QuerySpansParams{RolloutID: rollout})
		for i := range page.Items {
			reply.Spans = append(reply.Spans, sawSpan(&page.Items[i]))
		}
		return reply, err
	})
}

// wait waits for the oldest rollouts and forgets those that are finished.
func (a *algorithm) wait(ctx context.Context) {
	args := history.Args{Rollouts: append([]string{}, a.open[:min(len(a.open), 16)]...)}
	finished := map[string]bool{}
	_ = a.recorder.Do(a.name, history.Wait, args, func() (reply history.Reply, err error) {
		done, err := a.patient.WaitForRollouts(ctx, agl.WaitForRolloutsParams{
			RolloutIDs: args.Rollouts, Timeout: agl.Some(time.Duration(a.random.IntN(300)) * time.Millisecond),
		})
		for i := range done {
			finished[done[i].RolloutID] = true
			reply.Rollouts = append(reply.Rollouts, sawRollout(&done[i], nil))
		}
		return reply, err
	})
	kept := a.open[:0]
	for _, id := range a.open {
		if !finished[id] {
			kept = append(kept, id)
		}
	}
	a.open = kept
	for id := range finished {
		if a.random.IntN(4) == 0 {
			a.readSpans(ctx, id)
		}
	}
}
