// Package extract derives the rewards of a session from its conversation. The user's own program computes them, or a model
// judges each reply by the message that followed it.
//
//	session, err := extract.Read(rollout, spans)
//	values, err := program.Run(ctx, &session)
//	failed, err := judge.Judge(ctx, &session, ask, func(j extract.Judged) error { … })
//
// The package must not know routes, stores, or how a model is called.
package extract

import (
	"cmp"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// Session is the conversation of a session. Programs read its JSON form.
type Session struct {
	ID       string         `json:"session_id"` // of its rollout
	Metadata jsontext.Value `json:"metadata"`   // of its rollout
	Calls    []Call         `json:"calls"`      // in the order of their sequence ids, without side turns

	// Last is the sequence id of the last call. It changes when the session has further calls.
	Last int64 `json:"-"`
}

// Call is a model call that was answered.
type Call struct {
	ID       string            `json:"id"` // of the reply
	Turn     string            `json:"turn,omitzero"`
	Model    string            `json:"model"`
	Messages []adapter.Message `json:"messages"` // of the request
	Reply    adapter.Message   `json:"reply"`
	// Reasoning and Refusal are what the model said beside the content of its reply.
	Reasoning string `json:"reasoning,omitzero"`
	Refusal   string `json:"refusal,omitzero"`
}

// firstReply is the prefix of the attributes of a reply.
const firstReply = agl.AttrGenAICompletion + ".0."

// Query returns the query for the spans that [Read] needs.
func Query(rolloutID, attemptID string) agl.QuerySpansParams {
	return agl.QuerySpansParams{
		RolloutID: rolloutID, AttemptID: attemptID, Name: agl.SpanLiteLLMRequest,
		AttributeNames: append(adapter.Messages{}.Attributes(), agl.AttrTurn, agl.AttrTurnType), Paging: agl.Paging{Limit: -1},
	}
}

// Read reads a session from the spans of its rollout, which may be in any order.
func Read(r *agl.Rollout, spans []agl.Span) (Session, error) {
	s := Session{ID: r.RolloutID, Metadata: r.Metadata, Calls: []Call{}}
	if len(s.Metadata) == 0 {
		s.Metadata = jsontext.Value("{}")
	}
	spans = slices.Clone(spans)
	slices.SortStableFunc(spans, func(a, b agl.Span) int { return cmp.Compare(a.SequenceID, b.SequenceID) })
	for i := range spans {
		span := &spans[i]
		text := func(name string) string {
			value, _ := span.Attributes.GetString(name)
			return value
		}
		if span.Name != agl.SpanLiteLLMRequest || strings.EqualFold(text(agl.AttrTurnType), agl.TurnSide) {
			continue
		}
		found, err := adapter.Messages{OwnCalls: true}.Adapt(spans[i : i+1])
		if err != nil {
			return Session{}, err
		}
		for _, c := range found {
			n := len(c.Messages) - 1
			if n < 0 || c.Messages[n].Role != "assistant" { // it failed
				continue
			}
			s.Calls = append(s.Calls, Call{
				ID: text(agl.AttrGenAIResponseID), Turn: text(agl.AttrTurn), Model: text(agl.AttrGenAIRequestModel),
				Messages: c.Messages[:n], Reply: c.Messages[n],
				Reasoning: cmp.Or(text(firstReply+"reasoning_content"), text(firstReply+"reasoning")), Refusal: text(firstReply + "refusal"),
			})
			s.Last = span.SequenceID
		}
	}
	return s, nil
}

// next returns the message of a user or a tool that followed the reply of a call. It looks in the first later call that
// contains the reply, even if the program has shortened the conversation before it.
func (s *Session) next(call int) (message *adapter.Message, found bool) {
	reply := &s.Calls[call].Reply
	for i := call + 1; i < len(s.Calls); i++ {
		messages := s.Calls[i].Messages
		for at := len(messages) - 2; at >= 0; at-- {
			if after := &messages[at+1]; same(&messages[at], reply) && (after.Role == "user" || after.Role == "tool") {
				return after, true
			}
		}
	}
	return nil, false
}

// same reports whether a message repeats a reply. Some clients leave out the text beside calls.
func same(m, reply *adapter.Message) bool {
	if m.Role != "assistant" || len(m.ToolCalls) != len(reply.ToolCalls) {
		return false
	}
	if said := strings.TrimSpace(m.Text()); said != strings.TrimSpace(reply.Text()) && (said != "" || len(m.ToolCalls) == 0) {
		return false
	}
	for i := range m.ToolCalls {
		if m.ToolCalls[i].Function != reply.ToolCalls[i].Function {
			return false
		}
	}
	return true
}
