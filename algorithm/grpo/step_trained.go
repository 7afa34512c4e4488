package grpo

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/tinker"
)

// computed is what an update has computed for a sequence of tokens: numbers for each target of its datum.
type computed struct {
	sampler    []float32 // log-probabilities under the weights that sampled
	advantages []float32 // with the penalty of KL, without the factor of the correction
	current    []float32 // log-probabilities under the weights in training; nil if the engine was not asked
	weights    []float32 // nil if the correction has left out all tokens
}

// note keeps what is known about data before the correction. The address of its first token identifies a sequence.
func (u *update) note(data []tinker.Datum) {
	for i := range data {
		d := &data[i]
		u.computed[&d.Input[0]] = &computed{sampler: d.Logprobs, advantages: d.Advantages, weights: d.Weights}
	}
}

// noteCurrent keeps log-probabilities under the weights in training, the first ones of each datum.
func (u *update) noteCurrent(data []tinker.Datum, logprobs [][]float32) {
	for i := range data {
		if c := u.computed[&data[i].Input[0]]; c.current == nil {
			c.current = logprobs[i]
		}
	}
}

// noteKept keeps which tokens the correction has kept of data.
func (u *update) noteKept(data, kept []tinker.Datum) {
	for i := range data {
		u.computed[&data[i].Input[0]].weights = nil
	}
	for i := range kept {
		u.computed[&kept[i].Input[0]].weights = kept[i].Weights
	}
}

// trainedCall is what is written of one call: see agl.AttrTrainingCalls.
type trainedCall struct {
	SpanID     string   `json:"span_id"`
	Advantage  *float64 `json:"advantage,omitzero"`
	Advantages *series  `json:"advantages,omitzero"`
	LogRatios  *series  `json:"log_ratios,omitzero"`
	LeftOut    string   `json:"left_out,omitzero"`
}

// series is a number for each token of a reply, in two bytes each.
type series struct {
	Scale float64 `json:"scale"`
	Data  string  `json:"data"`
}

// newSeries returns the numbers of n tokens; nil if one is not finite.
func newSeries(n int, of func(i int) float64) *series {
	most := 0.0
	for i := range n {
		most = max(most, math.Abs(of(i))) // NaN, too
	}
	if math.IsNaN(most) || math.IsInf(most, 0) {
		return nil
	}
	s := series{Scale: most / math.MaxInt16}
	raw := make([]byte, 2*n)
	for i := range n {
		if most > 0 {
			binary.LittleEndian.PutUint16(raw[2*i:], uint16(int16(math.Round(of(i)/s.Scale))))
		}
	}
	s.Data = base64.StdEncoding.EncodeToString(raw)
	return &s
}

// maxTrainedTokens bounds what is written of the tokens of a rollout, to about 0.7 MB. Further calls have only their advantage, and
// only if it is the same for all their tokens.
const maxTrainedTokens = 1 << 17

// trainedCalls are the calls of a sample that an update was made of.
func (u *update) trainedCalls(s *sample) (calls []trainedCall) {
	tokens := 0
	for _, t := range s.sequences {
		if len(t.TokenIDs) == 0 || u.computed[&t.TokenIDs[0]] == nil {
			continue
		}
		c := u.computed[&t.TokenIDs[0]]
		for _, reply := range t.Replies {
			if from, to := max(reply.Start-1, 0), reply.End-1; from < to {
				tokens += to - from
				calls = append(calls, c.call(reply, from, to, tokens <= maxTrainedTokens))
			}
		}
	}
	return calls
}

// call describes a reply whose targets are [from, to).
func (c *computed) call(reply adapter.Reply, from, to int, whole bool) trainedCall {
	n := to - from
	call := trainedCall{SpanID: reply.SpanID}
	same := true
	for i := from + 1; i < to; i++ {
		same = same && c.advantages[i] == c.advantages[from]
	}
	if same {
		advantage := float64(c.advantages[from])
		call.Advantage = &advantage
	}
	if !whole {
		return call
	}
	if !same {
		call.Advantages = newSeries(n, func(i int) float64 { return float64(c.advantages[from+i]) })
	}
	if c.current != nil {
		call.LogRatios = newSeries(n, func(i int) float64 { return float64(c.current[from+i]) - float64(c.sampler[from+i]) })
	}
	bits := make([]byte, (n+7)/8)
	left := false
	for i := range n {
		if c.weights == nil || c.weights[from+i] == 0 {
			bits[i/8] |= 1 << (i % 8)
			left = true
		}
	}
	if left {
		call.LeftOut = base64.StdEncoding.EncodeToString(bits)
	}
	return call
}

// trainedSpan returns the span that records what a step has computed for a role from a rollout.
func trainedSpan(run, role string, step int, s *sample, calls []trainedCall) (agl.Span, error) {
	text, err := json.Marshal(calls)
	if err != nil {
		return agl.Span{}, err
	}
	attrs := []agl.Attr{{Key: agl.AttrTrainingRun, Value: run}, {Key: agl.AttrTrainingStep, Value: step}, {Key: agl.AttrTrainingCalls, Value: string(text)}}
	if role != "" {
		attrs = append(attrs, agl.Attr{Key: agl.AttrTrainingRole, Value: role})
	}
	now := agl.Some(agl.TimestampOf(time.Now()))
	span := agl.Span{RolloutID: s.id, AttemptID: s.attempt, Name: agl.SpanTraining, Status: agl.SpanStatus{Code: agl.StatusOK}, StartTime: now, EndTime: now}
	if span.Attributes, err = agl.NewAttributes(attrs...); err != nil {
		return agl.Span{}, err
	}
	if span.Resource.Attributes, err = agl.NewAttributes(agl.Attr{Key: agl.AttrRolloutID, Value: s.id}, agl.Attr{Key: agl.AttrAttemptID, Value: s.attempt}); err != nil {
		return agl.Span{}, err
	}
	id := sha256.Sum256([]byte("training\x00" + s.id + "\x00" + run + "\x00" + role + "\x00" + strconv.Itoa(step)))
	span.TraceID, span.SpanID = hex.EncodeToString(id[:16]), hex.EncodeToString(id[16:24])
	span.Context = &agl.SpanContext{TraceID: span.TraceID, SpanID: span.SpanID}
	return span, nil
}

// spansAtOnce is how many spans of a step are being written.
const spansAtOnce = 8

// keepTrained writes what a step has computed from its rollouts, while the run goes on. It is for people who look at the rollouts; a
// failure is only logged.
func (r *trainingRun) keepTrained(ctx context.Context, step int, l lessons) {
	r.keeping.Wait() // one step at a time
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), noteTimeout)
	store, run := r.session.Store(), r.session.Run
	r.keeping.Go(func() {
		defer done()
		var group errgroup.Group
		group.SetLimit(spansAtOnce)
		for _, one := range l.roles {
			for _, g := range one.groups {
				for i := range g {
					s := &g[i]
					if s.mask != "" {
						continue
					}
					group.Go(func() error {
						calls := one.update.trainedCalls(s)
						if len(calls) == 0 {
							return nil
						}
						span, err := trainedSpan(run, one.role.name, step, s, calls)
						if err == nil {
							_, err = store.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{span}, IssueSequenceIDs: true})
						}
						return err
					})
				}
			}
		}
		if err := group.Wait(); err != nil {
			r.cfg.Logger.WarnContext(ctx, "what was computed of rollouts is not kept with them", "step", step, "error", err)
		}
	})
}
