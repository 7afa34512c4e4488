package algorithm

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
	"iter"
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"golang.org/x/sync/errgroup"

	"github.com/agl-go/agl"
)

// Trained records what a step has computed for a rollout, for people who look at it.
type Trained struct {
	RolloutID, AttemptID string
	Run, Role            string // Role is empty in runs with one
	Step                 int
	Calls                []TrainedCall // those that were trained on
}

// TrainedCall is one call in agl.AttrTrainingCalls, which says what its members mean.
type TrainedCall struct {
	SpanID     string   `json:"span_id"`
	Advantage  *float64 `json:"advantage,omitzero"`
	Advantages *Series  `json:"advantages,omitzero"`
	LogRatios  *Series  `json:"log_ratios,omitzero"`
	LeftOut    string   `json:"left_out,omitzero"`
}

// MaxTrainedTokens bounds the tokens of a rollout that numbers are written for, which takes about 0.7 MB. Further calls have only their advantage, and
// only if it is the same for all their tokens.
const MaxTrainedTokens = 1 << 17

// Series is a number for each token of a reply, in two bytes each.
type Series struct {
	Scale float64 `json:"scale"`
	Data  string  `json:"data"`
}

// NewSeries returns the numbers of n tokens; nil if one is not finite.
func NewSeries(n int, of func(i int) float64) *Series {
	most := 0.0
	for i := range n {
		most = max(most, math.Abs(of(i))) // NaN, too
	}
	if math.IsNaN(most) || math.IsInf(most, 0) {
		return nil
	}
	s := Series{Scale: most / math.MaxInt16}
	raw := make([]byte, 2*n)
	for i := range n {
		if most > 0 {
			binary.LittleEndian.PutUint16(raw[2*i:], uint16(int16(math.Round(of(i)/s.Scale))))
		}
	}
	s.Data = base64.StdEncoding.EncodeToString(raw)
	return &s
}

// Span returns the span that records it.
func (t *Trained) Span() (agl.Span, error) {
	text, err := json.Marshal(t.Calls)
	if err != nil {
		return agl.Span{}, err
	}
	attrs := []agl.Attr{{Key: agl.AttrTrainingRun, Value: t.Run}, {Key: agl.AttrTrainingStep, Value: t.Step}, {Key: agl.AttrTrainingCalls, Value: string(text)}}
	if t.Role != "" {
		attrs = append(attrs, agl.Attr{Key: agl.AttrTrainingRole, Value: t.Role})
	}
	now := agl.Some(agl.TimestampOf(time.Now()))
	span := agl.Span{RolloutID: t.RolloutID, AttemptID: t.AttemptID, Name: agl.SpanTraining, Status: agl.SpanStatus{Code: agl.StatusOK}, StartTime: now, EndTime: now}
	if span.Attributes, err = agl.NewAttributes(attrs...); err != nil {
		return agl.Span{}, err
	}
	if span.Resource.Attributes, err = agl.NewAttributes(agl.Attr{Key: agl.AttrRolloutID, Value: t.RolloutID}, agl.Attr{Key: agl.AttrAttemptID, Value: t.AttemptID}); err != nil {
		return agl.Span{}, err
	}
	id := sha256.Sum256([]byte("training\x00" + t.RolloutID + "\x00" + t.Run + "\x00" + t.Role + "\x00" + strconv.Itoa(t.Step)))
	span.TraceID, span.SpanID = hex.EncodeToString(id[:16]), hex.EncodeToString(id[16:24])
	span.Context = &agl.SpanContext{TraceID: span.TraceID, SpanID: span.SpanID}
	return span, nil
}

const (
	keepAtOnce  = 8 // spans that are being written
	keepTimeout = 10 * time.Second
)

// KeepTrained writes what a step has computed from its rollouts, those with calls, while the run goes on. It is for people who look at the
// rollouts; a failure is only logged.
func (s *Session) KeepTrained(ctx context.Context, step int, list iter.Seq[Trained]) {
	s.keeping.Wait() // one step at a time
	s.keeping.Go(func() {
		if err := s.keepTrained(ctx, list); err != nil {
			s.p.Logger.WarnContext(ctx, "what was computed of rollouts is not kept with them", "step", step, "error", err)
		}
	})
}

// keepTrained goes on when ctx ends, for ten seconds at most: the last step of a run is looked at, too.
func (s *Session) keepTrained(ctx context.Context, list iter.Seq[Trained]) error {
	ctx, done := context.WithTimeout(context.WithoutCancel(ctx), keepTimeout)
	defer done()
	var group errgroup.Group
	group.SetLimit(keepAtOnce)
	for t := range list {
		if len(t.Calls) == 0 {
			continue
		}
		t.Run = s.Run
		group.Go(func() error {
			span, err := t.Span()
			if err == nil {
				_, err = s.Store().AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{span}, IssueSequenceIDs: true})
			}
			return err
		})
	}
	return group.Wait()
}
