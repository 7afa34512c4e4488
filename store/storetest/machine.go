package storetest

import (
	"errors"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

func modelTests(a *area) {
	a.t.Run("random operations", func(t *testing.T) {
		rapid.Check(t, func(rt *rapid.T) {
			tb := &checkTB{TB: t}
			defer tb.cleanup()
			instance := a.open(tb, OpenParams{})
			m := &machine{
				h: &harness{T: t, Instance: instance, ctx: t.Context()},
				m: &model{now: 1, workers: map[string]*modelWorker{}},
			}
			actions := map[string]func(*rapid.T){
				"":              m.check,
				"Enqueue":       m.enqueue,
				"StartRollout":  m.startRollout,
				"Dequeue":       m.dequeue,
				"StartAttempt":  m.startAttempt,
				"AddSpan":       m.addSpan,
				"AddReward":     m.addReward,
				"FindByReward":  m.findByReward,
				"UpdateAttempt": m.updateAttempt,
				"Metadata":      m.metadata,
				"UpdateRollout": m.updateRollout,
				"Cancel":        m.cancel,
				"Delete":        m.remove,
				"Heartbeat":     m.heartbeat,
				"Reserve":       m.reserve,
			}
			if instance.Advance != nil {
				actions["Advance"] = m.advance
			}
			rt.Repeat(actions)
		})
	})
}

// checkTB is the TB of one check. It runs its cleanups right after the check, because there
// are many checks.
type checkTB struct {
	testing.TB

	cleanups []func()
}

func (c *checkTB) Cleanup(f func()) { c.cleanups = append(c.cleanups, f) }

func (c *checkTB) cleanup() {
	for _, f := range slices.Backward(c.cleanups) {
		f()
	}
}

// machine applies the same operations to a store and to the model, and compares them.
type machine struct {
	h *harness
	m *model
}

func machineWorker(t *rapid.T) string {
	return rapid.SampledFrom([]string{"", "w1", "w2"}).Draw(t, "worker")
}

// rollout draws one of the existing rollouts.
func (s *machine) rollout(t *rapid.T) *modelRollout {
	if len(s.m.rollouts) == 0 {
		t.Skip("no rollouts")
	}
	return s.m.rollouts[rapid.IntRange(0, len(s.m.rollouts)-1).Draw(t, "rollout")]
}

// attempt draws one of the existing attempts, mostly the latest ones.
func (s *machine) attempt(t *rapid.T) (*modelRollout, *modelAttempt) {
	r := s.rollout(t)
	if len(r.attempts) == 0 {
		t.Skip("no attempts")
	}
	back := rapid.SampledFrom([]int{0, 0, 0, 1}).Draw(t, "back")
	return r, r.attempts[max(len(r.attempts)-1-back, 0)]
}

func drawRollout(t *rapid.T) (agl.EnqueueRollout, *modelRollout) {
	r := &modelRollout{
		run:   rapid.SampledFrom([]string{"a", "b"}).Draw(t, "run"),
		most:  rapid.IntRange(1, 3).Draw(t, "max_attempts"),
		retry: rapid.SliceOfNDistinct(rapid.SampledFrom(agl.AttemptStatuses()[2:]), 0, 3, rapid.ID).Draw(t, "retry"),
	}
	c := agl.RolloutConfig{MaxAttempts: r.most, RetryCondition: r.retry}
	if r.timeout = rapid.SampledFrom([]float64{0, 0, 30}).Draw(t, "timeout"); r.timeout > 0 {
		c.TimeoutSeconds = agl.Some(r.timeout)
	}
	if r.silence = rapid.SampledFrom([]float64{0, 0, 20}).Draw(t, "silence"); r.silence > 0 {
		c.UnresponsiveSeconds = agl.Some(r.silence)
	}
	return agl.EnqueueRollout{Input: jsontext.Value(`1`), Config: &c, Metadata: jsontext.Value(`{"run":"` + r.run + `"}`)}, r
}

func (s *machine) enqueue(t *rapid.T) {
	var requests []agl.EnqueueRollout
	var made []*modelRollout
	for range rapid.IntRange(1, 2).Draw(t, "n") {
		request, r := drawRollout(t)
		requests, made = append(requests, request), append(made, r)
	}
	for i, r := range s.h.enqueue(requests...) {
		made[i].id = r.RolloutID
		s.m.rollouts = append(s.m.rollouts, made[i])
		s.m.moveTo(made[i], agl.RolloutQueuing, s.m.nextTick())
	}
}

func (s *machine) startRollout(t *rapid.T) {
	request, r := drawRollout(t)
	worker := machineWorker(t)
	got := s.h.start(request, worker)
	r.id = got.RolloutID
	s.m.rollouts = append(s.m.rollouts, r)
	s.m.begin(r, got.Attempt.AttemptID, worker)
}

func (s *machine) dequeue(t *rapid.T) {
	worker := machineWorker(t)
	limit := rapid.IntRange(1, 2).Draw(t, "limit")
	claims := s.h.dequeue(limit, worker)
	if want := min(limit, len(s.m.queue)); len(claims) != want {
		t.Fatalf("claimed %d rollouts, want %d", len(claims), want)
	}
	for i := range claims {
		head := s.m.queue[0].tick
		at := slices.IndexFunc(s.m.queue, func(p modelPlace) bool { return p.r.id == claims[i].RolloutID })
		if at < 0 || s.m.queue[at].tick != head {
			t.Fatalf("claimed %s, want the head of the queue %s", claims[i].RolloutID, s.m.queue[0].r.id)
		}
		s.m.begin(s.m.queue[at].r, claims[i].Attempt.AttemptID, worker)
	}
	if len(claims) > 0 || worker == "" {
		return
	}
	w := s.m.worker(worker)
	w.asked = s.m.now
	if w.attempt == nil {
		w.status = agl.WorkerIdle
	}
}

func (s *machine) startAttempt(t *rapid.T) {
	r := s.rollout(t)
	worker := machineWorker(t)
	s.m.begin(r, s.h.startAttempt(r.id, worker).Attempt.AttemptID, worker)
}

func (s *machine) addSpan(t *rapid.T) {
	r, a := s.attempt(t)
	got, err := s.h.Store.AddSpans(s.h.ctx, agl.AddSpansParams{
		Spans: []agl.Span{span(r.id, a.id, "s"+strconv.FormatInt(r.last, 10), 0)}, IssueSequenceIDs: true,
	})
	if err != nil || len(got.Stored) != 1 {
		t.Fatalf("stored %d spans, error %v", len(got.Stored), err)
	}
	s.m.addSpan(r, a)
	if got.Stored[0].SequenceID != r.last {
		t.Fatalf("issued sequence id %d, want %d", got.Stored[0].SequenceID, r.last)
	}
	if told := len(got.Cancelled) > 0; told != (r.status == agl.RolloutCancelled) {
		t.Fatalf("told of cancelling: %v, rollout is %s", told, r.status)
	}
}

func (s *machine) updateAttempt(t *rapid.T) {
	r, a := s.attempt(t)
	status := rapid.SampledFrom(agl.AttemptStatuses()).Draw(t, "status")
	s.h.report(r.id, a.id, status)
	s.m.report(r, a, status)
}

func (s *machine) metadata(t *rapid.T) {
	r, a := s.attempt(t)
	outcome := rapid.SampledFrom([]agl.OutcomeKind{agl.OutcomeOK, agl.OutcomePanic}).Draw(t, "outcome")
	_, err := s.h.Store.UpdateAttempt(s.h.ctx, agl.UpdateAttemptParams{
		RolloutID: r.id, AttemptID: a.id, Metadata: agl.WithOutcome(nil, agl.Outcome{Kind: outcome}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if r.status != agl.RolloutCancelled || a.outcome != agl.OutcomeCancelled {
		a.outcome = outcome
	}
}

func (s *machine) updateRollout(t *rapid.T) {
	r := s.rollout(t)
	status := rapid.SampledFrom(agl.RolloutStatuses()).Draw(t, "status")
	_, err := s.h.Store.UpdateRollout(s.h.ctx, agl.UpdateRolloutParams{RolloutID: r.id, Status: &status})
	if s.m.setStatus(r, status) {
		if err != nil {
			t.Fatal(err)
		}
	} else if !errors.Is(err, agl.ErrIllegalState) {
		t.Fatalf("setting %s on %s gave error %v, want illegal state", status, r.status, err)
	}
}

func (s *machine) cancel(t *rapid.T) {
	r := s.rollout(t)
	s.h.cancel(r.id)
	if !r.ended {
		s.m.cancel(r)
	}
}

func (s *machine) remove(t *rapid.T) {
	r := s.rollout(t)
	err := s.h.Store.DeleteRollout(s.h.ctx, agl.DeleteRolloutParams{RolloutID: r.id})
	if !r.ended {
		if !errors.Is(err, agl.ErrIllegalState) {
			t.Fatalf("deleting a rollout that is %s gave error %v, want illegal state", r.status, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	s.m.remove(r)
}

func (s *machine) heartbeat(t *rapid.T) {
	worker := rapid.SampledFrom([]string{"w1", "w2"}).Draw(t, "worker")
	s.h.heartbeat(worker, "")
	s.m.heartbeat(worker)
}

func (s *machine) reserve(t *rapid.T) {
	r := s.rollout(t)
	count := rapid.IntRange(1, 5).Draw(t, "count")
	if first := s.h.reserve(r.id, count); first != r.last+1 {
		t.Fatalf("reserved from %d, want %d", first, r.last+1)
	}
	r.last += int64(count)
}

func (s *machine) advance(t *rapid.T) {
	seconds := rapid.IntRange(1, 25).Draw(t, "seconds")
	s.h.Advance(time.Duration(seconds) * time.Second)
	s.m.now += float64(seconds)
}

// check compares the whole visible state.
func (s *machine) check(t *rapid.T) {
	s.m.expire()
	page := s.h.rollouts(agl.QueryRolloutsParams{})
	if len(page.Items) != len(s.m.rollouts) {
		t.Fatalf("%d rollouts, want %d", len(page.Items), len(s.m.rollouts))
	}
	for i, want := range s.m.rollouts {
		got := &page.Items[i]
		if got.RolloutID != want.id || got.Status != want.status || got.EndTime.Valid != want.ended {
			t.Fatalf("rollout %d is %s %s, ended %v; want %s %s, ended %v",
				i, got.RolloutID, got.Status, got.EndTime.Valid, want.id, want.status, want.ended)
		}
		s.checkAttempts(t, want, got.Attempt)
	}
	for id, want := range s.m.workers {
		got := s.h.worker(id)
		attempt := ""
		if want.attempt != nil {
			attempt = want.attempt.id
		}
		if got.Status != want.status || got.CurrentAttemptID.V != attempt {
			t.Fatalf("worker %s is %s with %q, want %s with %q", id, got.Status, got.CurrentAttemptID.V, want.status, attempt)
		}
	}
}

func (s *machine) checkAttempts(t *rapid.T, want *modelRollout, latest *agl.Attempt) {
	got := s.h.attempts(want.id)
	if len(got) != len(want.attempts) {
		t.Fatalf("rollout %s has %d attempts, want %d", want.id, len(got), len(want.attempts))
	}
	for i, w := range want.attempts {
		g := &got[i]
		var kind agl.OutcomeKind
		if raw, there := rawjson.Get(g.Metadata, agl.MetadataOutcome); there {
			var o agl.Outcome
			if err := rawjson.Unmarshal(raw, &o); err != nil {
				t.Fatal(err)
			}
			kind = o.Kind
		}
		if g.AttemptID != w.id || g.SequenceID != i+1 || g.Status != w.status || g.EndTime.Valid != w.ended ||
			g.LastHeartbeatTime.Valid != (w.beat > 0) || kind != w.outcome {
			t.Fatalf("attempt %d of %s is %+v with outcome %q, want %+v", i+1, want.id, g, kind, w)
		}
	}
	if n := len(got); n > 0 && (latest == nil || latest.AttemptID != got[n-1].AttemptID) {
		t.Fatalf("rollout %s comes with attempt %v, want %s", want.id, latest, got[n-1].AttemptID)
	}
}
