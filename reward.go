package agl

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"time"
)

// The sources of rewards that have a priority. Other sources, and the rewards that an agent emits, have priority 0.
const (
	RewardFromHuman   = "human"   // the verdict of somebody who reviews recordings, as on the dashboard
	RewardFromUser    = "user"    // the verdict of a user of the agent
	RewardFromEvent   = "event"   // what the application saw: accepted, bought, reopened
	RewardFromProgram = "program" // a checker's result
	RewardFromJudge   = "judge"   // a model's opinion
)

// rewardPriority returns the priority of a source. Of the rewards of a rollout, or of a call, the one with the
// highest priority counts; of several with this priority, the last.
func rewardPriority(source string) int {
	switch source {
	case RewardFromHuman:
		return 40
	case RewardFromUser:
		return 30
	case RewardFromEvent:
		return 20
	case RewardFromProgram:
		return 10
	}
	return 0
}

// AddRewardParams are the arguments of [AddReward].
type AddRewardParams struct {
	RolloutID string
	Rewards   []Reward // at least one dimension, the primary one first; a scalar is named "primary"
	// Call, SpanID and Turn name what is rewarded instead of the whole rollout: a model call by the id of its reply,
	// any span by its id, or the last model call of a turn (AttrTurn). At most one may be set.
	Call, SpanID, Turn string
	// Source says where the reward comes from, such as RewardFromUser, and with that its
	// priority, unless Priority is set.
	Source   string
	Priority Null[int]
	Message  string          // why, for people
	Time     Null[Timestamp] // when it was earned; null is now
	// IdempotencyKey makes a repeated call return the stored reward, for as long as the spans of the rollout are
	// kept. The same key with another reward is ErrConflict.
	IdempotencyKey string
}

// AddedReward is the result of [AddReward].
type AddedReward struct {
	RolloutID, AttemptID, SpanID string
	SequenceID                   int64
}

func (r *AddedReward) members(w *wireForm) *wireForm {
	w.string("rollout_id", &r.RolloutID)
	w.string("attempt_id", &r.AttemptID)
	w.string("span_id", &r.SpanID)
	integer(w, "sequence_id", &r.SequenceID)
	return w
}

// AddReward appends a reward to a rollout, at any time after its first attempt began, even after it has finished. The
// reward becomes a span of the latest attempt, or of the attempt with the call, span or turn that it names. A
// rollout, call, span or turn that the store does not have is ErrNotFound, and a rollout without an attempt is
// ErrIllegalState.
func AddReward(ctx context.Context, store Store, p AddRewardParams) (AddedReward, error) {
	span, err := rewardSpan(&p)
	if err != nil {
		return AddedReward{}, err
	}
	if p.IdempotencyKey != "" {
		if there, found, err := sameReward(ctx, store, &p, &span); found || err != nil {
			return there, err
		}
	}
	if span.AttemptID, err = rewardedAttempt(ctx, store, &p); err != nil {
		return AddedReward{}, err
	}
	span.Resource.Attributes, err = NewAttributes(Attr{AttrRolloutID, span.RolloutID}, Attr{AttrAttemptID, span.AttemptID})
	if err != nil {
		return AddedReward{}, err
	}
	result, err := store.AddSpans(ctx, AddSpansParams{Spans: []Span{span}, IssueSequenceIDs: true})
	if err != nil {
		return AddedReward{}, err
	}
	if len(result.Stored) == 0 { // a call with the same key was faster
		there, found, err := sameReward(ctx, store, &p, &span)
		if err == nil && !found {
			err = Errorf(CodeNotFound, "rollout %q was deleted meanwhile", p.RolloutID)
		}
		return there, err
	}
	return addedReward(&result.Stored[0]), nil
}

func addedReward(s *Span) AddedReward {
	return AddedReward{RolloutID: s.RolloutID, AttemptID: s.AttemptID, SpanID: s.SpanID, SequenceID: s.SequenceID}
}

// rewardSpan makes the span of a reward, without its attempt.
func rewardSpan(p *AddRewardParams) (Span, error) {
	if p.RolloutID == "" {
		return Span{}, Errorf(CodeInvalid, "rollout_id: empty, must be the id of a rollout")
	}
	named := 0
	for _, name := range [...]string{p.Call, p.SpanID, p.Turn} {
		if name != "" {
			named++
		}
	}
	if named > 1 {
		return Span{}, Errorf(CodeInvalid, "call, span and turn: got %q, %q and %q, must be one of them, or none for the whole rollout", p.Call, p.SpanID, p.Turn)
	}
	attrs, err := RewardAttributes(p.Rewards...)
	if err != nil {
		return Span{}, err
	}
	for _, given := range [...]struct{ key, value string }{
		{AttrRewardSource, p.Source}, {AttrRewardMessage, p.Message}, {AttrRewardCall, p.Call}, {AttrRewardSpan, p.SpanID}, {AttrRewardTurn, p.Turn},
	} {
		if given.value != "" {
			attrs = append(attrs, Attr{given.key, given.value})
		}
	}
	attrs = append(attrs, Attr{AttrRewardPriority, p.Priority.Or(rewardPriority(p.Source))})
	span := Span{RolloutID: p.RolloutID, Name: SpanAnnotation, Status: SpanStatus{Code: StatusOK}}
	if span.Attributes, err = NewAttributes(attrs...); err != nil {
		return Span{}, err
	}
	const latest = 253_402_300_799 // the end of the year 9999: beyond it are milliseconds
	if p.Time.Valid && !(p.Time.V >= 0 && p.Time.V <= latest) {
		return Span{}, Errorf(CodeInvalid, "at: got %v, must be in Unix seconds", p.Time.V)
	}
	at := Some(p.Time.Or(TimestampOf(time.Now())))
	span.StartTime, span.EndTime = at, at
	id := sha256.Sum256([]byte("reward\x00" + p.RolloutID + "\x00" + p.IdempotencyKey))
	if p.IdempotencyKey == "" {
		rand.Read(id[:])
	}
	span.TraceID, span.SpanID = hex.EncodeToString(id[:16]), hex.EncodeToString(id[16:24])
	span.Context = &SpanContext{TraceID: span.TraceID, SpanID: span.SpanID}
	return span, nil
}

// sameReward finds the reward that an earlier call with the same key has stored.
func sameReward(ctx context.Context, store Store, p *AddRewardParams, span *Span) (there AddedReward, found bool, err error) {
	page, err := store.QuerySpans(ctx, QuerySpansParams{RolloutID: p.RolloutID, SpanID: span.SpanID, Paging: Paging{Limit: 1}})
	if err != nil || len(page.Items) == 0 {
		return AddedReward{}, false, err
	}
	old := &page.Items[0]
	if !bytes.Equal(old.Attributes, span.Attributes) || p.Time.Valid && old.StartTime != p.Time {
		return AddedReward{}, true, Errorf(CodeConflict, "idempotency_key: %q was used for another reward of rollout %q", p.IdempotencyKey, p.RolloutID)
	}
	return addedReward(old), true, nil
}

// rewardedAttempt returns the attempt that a reward belongs to.
func rewardedAttempt(ctx context.Context, store Store, p *AddRewardParams) (string, error) {
	rollout, err := store.GetRollout(ctx, GetRolloutParams{RolloutID: p.RolloutID})
	switch {
	case err != nil:
		return "", err
	case rollout.Attempt == nil:
		return "", Errorf(CodeIllegalState, "rollout %q is %s and has no attempt that could be rewarded", p.RolloutID, rollout.Status)
	case p.Call == "" && p.SpanID == "" && p.Turn == "":
		return rollout.Attempt.AttemptID, nil
	}
	page, err := store.QuerySpans(ctx, QuerySpansParams{RolloutID: p.RolloutID, SpanID: p.SpanID, Paging: Paging{Limit: -1, Order: Descending}})
	if err != nil {
		return "", err
	}
	for i := range page.Items {
		s := &page.Items[i]
		if p.SpanID != "" || p.Call != "" && s.says(AttrGenAIResponseID, p.Call) || p.Turn != "" && s.says(AttrTurn, p.Turn) {
			return s.AttemptID, nil
		}
	}
	switch {
	case p.SpanID != "":
		return "", Errorf(CodeNotFound, "span: rollout %q has no span %q", p.RolloutID, p.SpanID)
	case p.Turn != "":
		return "", Errorf(CodeNotFound, "turn: rollout %q has no model call of a turn %q", p.RolloutID, p.Turn)
	}
	return "", Errorf(CodeNotFound, "call: rollout %q has no model call whose reply has the id %q", p.RolloutID, p.Call)
}

// says reports whether the span has an attribute with this text, which must not be empty.
func (s *Span) says(attribute, text string) bool {
	if !bytes.Contains(s.Attributes, []byte(`"`+attribute+`"`)) { // most spans do not have it
		return false
	}
	is, _ := s.Attributes.GetString(attribute)
	return is == text
}
