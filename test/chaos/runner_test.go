package chaos

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/test/chaos/history"
)

// runner is a simulated runner: it behaves like a real one, and now and then misbehaves.
type runner struct {
	*load

	name   string
	random *rand.Rand
	client *client.Client
	poll   int
	spans  uint64 // made so far: their ids are unique
}

func newRunner(l *load, i int) *runner {
	r := &runner{load: l, name: "runner-" + strconv.Itoa(i), random: l.random(1, i), client: l.patient, spans: uint64(i) << 40}
	if i%4 == 0 {
		r.client = l.hasty
	}
	return r
}

// run works until there can be no more work. It finishes its last job.
func (r *runner) run(ctx context.Context) {
	for r.working.Err() == nil {
		claims, err := r.dequeue()
		if err != nil && backoff.Sleep(r.working, 50*time.Millisecond) != nil {
			return
		}
		for _, claim := range claims {
			(&job{runner: r, claim: claim, ctx: ctx}).run()
		}
	}
}

func (r *runner) chance(p float64) bool { return r.random.Float64() < p }

func (r *runner) dequeue() ([]agl.AttemptedRollout, error) {
	r.poll++
	limit := 1
	if r.chance(0.1) {
		limit = 3
	}
	args := history.Args{Worker: r.name, Limit: limit}
	var result agl.DequeueResult
	err := r.recorder.Do(r.name, history.Dequeue, args, func() (reply history.Reply, err error) {
		result, err = r.client.DequeueRollouts(r.working, agl.DequeueRolloutsParams{
			Limit: limit, WorkerID: agl.Some(r.name), Wait: time.Duration(r.random.IntN(400)) * time.Millisecond,
			IdempotencyKey: r.name + "-" + strconv.Itoa(r.poll),
		})
		for i := range result.Rollouts {
			reply.Rollouts = append(reply.Rollouts, sawRollout(&result.Rollouts[i].Rollout, result.Rollouts[i].Attempt))
		}
		reply.Closed = result.Closed
		return reply, err
	})
	return result.Rollouts, err
}

// job is one claim, and the course that it takes.
type job struct {
	*runner

	claim    agl.AttemptedRollout
	ctx      context.Context
	steps    int // left until the agent dies; negative is never
	late     int // steps left until it falls silent for too long; negative is never
	repeats  bool
	reserved []int64
	said     []string // texts of its spans
}

func (j *job) run() {
	j.steps, j.late = -1, -1
	switch p := j.random.Float64(); {
	case p < 0.06:
		j.steps = j.random.IntN(6)
	case p < 0.12:
		j.late = j.random.IntN(6)
	case p < 0.25:
		j.repeats = true
	}
	status := agl.AttemptSucceeded
	if j.chance(0.1) {
		status = agl.AttemptFailed
	}
	for _, step := range []func(){
		j.reserve,
		func() { j.addSpans(2, false) },
		j.heartbeat,
		func() { j.update(agl.AttemptRunning) },
		func() { j.addSpans(1+j.random.IntN(3), true) },
		func() { j.update(status) },
	} {
		if j.steps == 0 || j.ctx.Err() != nil {
			return
		}
		if j.late == 0 {
			silence := unresponsive + time.Duration(j.random.IntN(1000))*time.Millisecond
			_ = backoff.Sleep(j.ctx, silence)
		}
		j.steps--
		j.late--
		step()
	}
}

// twice sometimes repeats an operation, like a client that has lost the answer.
func (j *job) twice(write func()) {
	write()
	if j.repeats && j.chance(0.5) {
		write()
	}
}

func (j *job) args() history.Args {
	return history.Args{Rollout: j.claim.RolloutID, Attempt: j.claim.Attempt.AttemptID, Worker: j.name}
}

// The errors of what follows are in the history; the runner goes on.

func (j *job) reserve() {
	if j.chance(0.5) {
		return
	}
	args := j.args()
	args.Count = 2 + j.random.IntN(3)
	_ = j.recorder.Do(j.name, history.Reserve, args, func() (history.Reply, error) {
		first, err := j.client.ReserveSequenceIDs(j.ctx, agl.ReserveSequenceIDsParams{
			RolloutID: args.Rollout, AttemptID: args.Attempt, Count: args.Count,
		})
		for i := range args.Count {
			if err == nil {
				j.reserved = append(j.reserved, first+int64(i))
			}
		}
		return history.Reply{First: first}, err
	})
}

func (j *job) heartbeat() {
	_ = j.recorder.Do(j.name, history.Heartbeat, history.Args{Worker: j.name}, func() (history.Reply, error) {
		_, err := j.client.UpdateWorker(j.ctx, agl.UpdateWorkerParams{WorkerID: j.name})
		return history.Reply{}, err
	})
}

func (j *job) update(status agl.AttemptStatus) {
	if status == agl.AttemptRunning && j.chance(0.6) {
		return
	}
	j.twice(func() {
		args := j.args()
		args.Status, args.Mark = string(status), j.recorder.Mark()
		_ = j.recorder.Do(j.name, history.UpdateAttempt, args, func() (history.Reply, error) {
			_, err := j.client.UpdateAttempt(j.ctx, agl.UpdateAttemptParams{
				RolloutID: args.Rollout, AttemptID: args.Attempt, Status: &status, Metadata: mark(args.Mark),
			})
			return history.Reply{}, err
		})
	})
}

// addSpans stores n spans, and the reward.
func (j *job) addSpans(n int, reward bool) {
	args := j.args()
	var spans []agl.Span
	for range n {
		spans = append(spans, j.span("chaos.step"))
	}
	if reward {
		// Whoever reports the attempt's reward, and how often: it is the same span.
		s := j.span(agl.SpanReward)
		s.SpanID = "reward"
		s.Attributes = agl.Attributes(`{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":0.5}`)
		spans = append(spans, s)
	}
	for i := range spans {
		if len(j.reserved) > 0 {
			spans[i].SequenceID, j.reserved = j.reserved[0], j.reserved[1:]
		}
		saw := sawSpan(&spans[i])
		saw.Attempt = ""
		args.Spans = append(args.Spans, saw)
	}
	j.twice(func() {
		_ = j.recorder.Do(j.name, history.AddSpans, args, func() (reply history.Reply, err error) {
			result, err := j.client.AddSpans(j.ctx, agl.AddSpansParams{Spans: spans, IssueSequenceIDs: true})
			for i := range result.Stored {
				reply.Spans = append(reply.Spans, history.Span{ID: result.Stored[i].SpanID, Sequence: result.Stored[i].SequenceID})
			}
			return reply, err
		})
	})
}

// span returns a new span. Like the record of a model call it repeats all earlier texts, so that
// the store keeps it as a delta.
func (j *job) span(name string) agl.Span {
	j.spans++
	text := make([]byte, 20+j.random.IntN(700))
	for i := range text {
		text[i] = byte(j.random.Uint32())
	}
	j.said = append(j.said, hex.EncodeToString(text))
	var attributes strings.Builder
	for i, said := range j.said {
		fmt.Fprintf(&attributes, `,"text.%d":%q`, i, said)
	}
	return agl.Span{
		RolloutID: j.claim.RolloutID, AttemptID: j.claim.Attempt.AttemptID, TraceID: j.claim.RolloutID,
		SpanID: fmt.Sprintf("%016x", j.spans), Name: name, Status: agl.SpanStatus{Code: agl.StatusOK},
		Attributes: agl.Attributes("{" + attributes.String()[1:] + "}"),
		StartTime:  agl.Some(agl.TimestampOf(time.Now())), EndTime: agl.Some(agl.TimestampOf(time.Now())),
	}
}
