package gateway

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/randomid"
	"github.com/agl-go/agl/internal/rawjson"
)

// The types of events that the gateway knows. Others are stored as they are.
const (
	eventModelRequest = "model_request"
	eventReward       = "reward"
)

// event is an event of an attempt.
type event struct {
	kind      string
	attemptID string
	timestamp agl.Timestamp
	data      jsontext.Value // an object
}

// appendJSON appends the event in the form of this API. id is that of its rollout; "" leaves it out.
func (e *event) appendJSON(dst []byte, id string) []byte {
	o := rawjson.NewObject(dst)
	o.String("event_type", e.kind)
	if id != "" {
		o.String("rollout_id", id)
	}
	o.String("attempt_id", e.attemptID)
	o.Float("timestamp", float64(e.timestamp))
	o.Raw("data", e.data)
	return o.End()
}

// span returns the span that stores the event. Its attributes hold what the store's own readers understand of the
// event.
func (e *event) span(r *rollout) agl.Span {
	o := rawjson.NewObject(make([]byte, 0, len(e.data)+192))
	o.Key(keyRecord)
	o = e.appendJSON(o, "")
	s := agl.Span{
		RolloutID: r.storeID(), AttemptID: r.Attempt.AttemptID,
		TraceID: randomid.Hex(16), SpanID: randomid.Hex(8), Name: "agl.event." + e.kind,
		Status:    agl.SpanStatus{Code: agl.StatusOK},
		StartTime: agl.Some(e.timestamp), EndTime: agl.Some(e.timestamp),
		Extra: o.End(),
	}
	if e.kind == eventReward {
		value, _ := rawjson.Get(e.data, "value")
		if f, ok := finite(value); ok {
			if attrs, err := agl.RewardAttributes(agl.Reward{Name: "primary", Value: f}); err == nil {
				if s.Attributes, err = agl.NewAttributes(attrs...); err == nil {
					s.Name = agl.SpanAnnotation
				}
			}
		}
	}
	return s
}

// eventOf reads the event in a stored span. ok is false for spans of other origin.
func eventOf(payload jsontext.Value) (e event, ok bool) {
	raw, ok := rawjson.Get(payload, keyRecord)
	if !ok {
		return e, false
	}
	for name, value := range rawjson.Members(raw) {
		switch {
		case rawjson.NameIs(name, "event_type"):
			e.kind = rawjson.Unquote(value)
		case rawjson.NameIs(name, "attempt_id"):
			e.attemptID = rawjson.Unquote(value)
		case rawjson.NameIs(name, "timestamp"):
			f, err := strconv.ParseFloat(string(value), 64)
			if err != nil {
				return e, false
			}
			e.timestamp = agl.Timestamp(f)
		case rawjson.NameIs(name, "data"):
			e.data = value
		}
	}
	return e, true
}

// errNoAttempt is the error for an event of a rollout that waits for a runner of the store.
func errNoAttempt(id string) error {
	return errStatus(http.StatusConflict, "Rollout "+id+": no runner has started it; events belong to an attempt")
}

// record stores the name of an attempt that has no event yet, and then the event. Once it returns, the event survives
// the end of this process.
func (g *Gateway) record(ctx context.Context, r rollout, e *event, span agl.Span) error {
	if !slices.Contains(r.Attempts, e.attemptID) {
		_, err := g.revise(ctx, r, func(r *rollout) (*change, error) {
			if slices.Contains(r.Attempts, e.attemptID) {
				return nil, nil
			}
			c := &change{record: r.recordV1}
			c.record.Attempts = append(slices.Clone(r.Attempts), e.attemptID)
			return c, nil
		})
		if err != nil {
			return err
		}
	}
	added, err := g.cfg.Store.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{span}, IssueSequenceIDs: true})
	if agl.ErrorCode(err) == agl.CodeNotFound {
		return errNoRollout(r.id())
	}
	if err != nil {
		return err
	}
	if len(added.Cancelled) > 0 { // perhaps because another server has deleted the rollout
		if _, err := g.find(ctx, r.id()); err != nil {
			return err
		}
	}
	return nil
}

// trim reduces the data of an event to what training needs. Other types of events stay
// as they are.
func (e *event) trim() {
	switch e.kind {
	case eventModelRequest:
		e.data = tripletOf(e.data)
	case eventReward:
		o := rawjson.NewObject(nil)
		value, _ := rawjson.Get(e.data, "value")
		o.Raw("value", value)
		for _, key := range []string{"source", "reason"} {
			if v, ok := rawjson.Get(e.data, key); ok {
				o.Raw(key, v)
			}
		}
		e.data = o.End()
	}
}
