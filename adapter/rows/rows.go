// Package rows turns the spans of rollouts into the rows of exported files: triplets, trajectories, conversations and
// padded batches. Their fields are the columns that docs/inspect.md describes.
//
//	rows, err := rows.Triplets(rows.OriginOf(&rollout), spans, rows.Proxy)
//
// The package must not know where the spans come from, nor where the rows go.
package rows

import (
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// Row is a row of an exported file: a Triplet, a Trajectory or Messages.
type Row interface {
	// Size estimates how many bytes of memory the row takes.
	Size() int
}

// Origin says where a row comes from.
type Origin struct {
	RolloutID   string  `json:"rollout_id" parquet:"rollout_id"`
	AttemptID   string  `json:"attempt_id" parquet:"attempt_id"`
	Mode        *string `json:"mode" parquet:"mode,optional"`
	ResourcesID *string `json:"resources_id" parquet:"resources_id,optional"`
}

// OriginOf returns the origin of the rows of a rollout's latest attempt.
func OriginOf(r *agl.AttemptedRollout) Origin {
	origin := Origin{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, ResourcesID: pointer(r.ResourcesID)}
	if r.Mode != agl.ModeNone {
		origin.Mode = new(string(r.Mode))
	}
	return origin
}

// pointer returns nil for null.
func pointer[T any](n agl.Null[T]) *T {
	if !n.Valid {
		return nil
	}
	return &n.V
}

// Triplet is a model call.
type Triplet struct {
	Origin

	SpanID           string    `json:"span_id" parquet:"span_id"`
	SequenceID       int64     `json:"sequence_id" parquet:"sequence_id"`
	ResponseID       *string   `json:"response_id" parquet:"response_id,optional"`
	AgentName        *string   `json:"agent_name" parquet:"agent_name,optional"`
	ModelVersion     string    `json:"model_version" parquet:"model_version"`
	FinishReason     string    `json:"finish_reason" parquet:"finish_reason"`
	PromptTokenIDs   []int32   `json:"prompt_token_ids" parquet:"prompt_token_ids,list"`
	ResponseTokenIDs []int32   `json:"response_token_ids" parquet:"response_token_ids,list"`
	Logprobs         []float32 `json:"logprobs" parquet:"logprobs,list"`
	Prompt           document  `json:"prompt" parquet:"prompt,json"`
	Response         document  `json:"response" parquet:"response,json"`
	Reward           *float64  `json:"reward" parquet:"reward,optional"`
}

// newTriplet returns the row of a model call.
func newTriplet(origin Origin, t *adapter.Triplet) Triplet {
	return Triplet{
		Origin: origin, SpanID: t.Call.SpanID, SequenceID: t.Call.SequenceID, ResponseID: pointer(t.Metadata.ResponseID),
		AgentName: pointer(t.Metadata.AgentName), ModelVersion: t.Call.Version, FinishReason: t.Call.FinishReason,
		PromptTokenIDs: t.Prompt.TokenIDs, ResponseTokenIDs: t.Response.TokenIDs, Logprobs: t.Call.Logprobs,
		Prompt: documentOf(t.Prompt.RawContent), Response: documentOf(t.Response.RawContent), Reward: pointer(t.Reward),
	}
}

// document is JSON in a column, which Parquet files hold as text. A missing value is the document null.
type document string

// MarshalJSONTo writes the document as it is.
func (d document) MarshalJSONTo(enc *jsontext.Encoder) error {
	return enc.WriteValue(jsontext.Value(d))
}

func documentOf(v jsontext.Value) document {
	if len(v) == 0 {
		return "null"
	}
	return document(v)
}

// Size implements [Row].
func (r Triplet) Size() int {
	return 256 + 4*(len(r.PromptTokenIDs)+len(r.ResponseTokenIDs)+len(r.Logprobs)) + len(r.Prompt) + len(r.Response)
}

// Trajectory is a sequence of tokens to train on.
type Trajectory struct {
	Origin

	Index         int32     `json:"index" parquet:"index"` // in the attempt, from 0
	TokenIDs      []int32   `json:"token_ids" parquet:"token_ids,list"`
	Mask          []bool    `json:"mask" parquet:"mask,list"`
	Logprobs      []float32 `json:"logprobs" parquet:"logprobs,list"`
	Reward        *float64  `json:"reward" parquet:"reward,optional"`
	AttemptReward *float64  `json:"attempt_reward" parquet:"attempt_reward,optional"`
	ModelVersions []string  `json:"model_versions" parquet:"model_versions,list"`
	Replies       []reply   `json:"replies" parquet:"replies,list"`
}

// reply is the part of a trajectory that one call wrote.
type reply struct {
	Start        int32    `json:"start" parquet:"start"`
	End          int32    `json:"end" parquet:"end"`
	SpanID       string   `json:"span_id" parquet:"span_id"`
	SequenceID   int64    `json:"sequence_id" parquet:"sequence_id"`
	ResponseID   *string  `json:"response_id" parquet:"response_id,optional"`
	AgentName    *string  `json:"agent_name" parquet:"agent_name,optional"`
	FinishReason string   `json:"finish_reason" parquet:"finish_reason"`
	HasLogprobs  bool     `json:"has_logprobs" parquet:"has_logprobs"`
	Reward       *float64 `json:"reward" parquet:"reward,optional"`
}

// newTrajectory returns the row of the index-th trajectory of an attempt with this reward.
func newTrajectory(origin Origin, index int, t *adapter.Trajectory, attempt agl.Null[float64]) Trajectory {
	row := Trajectory{
		Origin: origin, Index: int32(index), TokenIDs: t.TokenIDs, Mask: t.Mask, Logprobs: t.Logprobs,
		Reward: pointer(t.Reward), AttemptReward: pointer(attempt), ModelVersions: t.Versions(),
	}
	for i := range t.Replies {
		r := &t.Replies[i]
		row.Replies = append(row.Replies, reply{
			Start: int32(r.Start), End: int32(r.End), SpanID: r.SpanID, SequenceID: r.SequenceID,
			ResponseID: pointer(r.ResponseID), AgentName: pointer(r.AgentName), FinishReason: r.FinishReason,
			HasLogprobs: r.HasLogprobs(), Reward: pointer(r.Reward),
		})
	}
	return row
}

// Size implements [Row].
func (r Trajectory) Size() int { return 256 + 9*len(r.TokenIDs) + 160*len(r.Replies) }

// Messages is a conversation. Its JSON is the conversation alone, in the form of OpenAI's fine-tuning files, which
// have no place for anything else.
type Messages struct {
	Origin

	Messages []message `parquet:"messages,list"`
	Tools    document  `parquet:"tools,json"`
	Reward   *float64  `parquet:"reward,optional"` // the attempt's

	conversation adapter.Conversation
}

type message struct {
	Role       string   `parquet:"role"`
	Content    document `parquet:"content,json"`
	ToolCalls  document `parquet:"tool_calls,json"`
	ToolCallID *string  `parquet:"tool_call_id,optional"`
}

// newMessages returns the row of a conversation and its attempt's reward.
func newMessages(origin Origin, conversation adapter.Conversation, reward agl.Null[float64]) (Messages, error) {
	row := Messages{Origin: origin, Tools: documentOf(nil), Reward: pointer(reward), conversation: conversation}
	for i := range conversation.Messages {
		m := &conversation.Messages[i]
		cells := message{Role: m.Role, Content: documentOf(m.Content), ToolCalls: documentOf(nil)}
		if m.ToolCallID != "" {
			cells.ToolCallID = &m.ToolCallID
		}
		if len(m.ToolCalls) > 0 {
			calls, err := json.Marshal(m.ToolCalls)
			if err != nil {
				return Messages{}, fmt.Errorf("tool calls: %w", err)
			}
			cells.ToolCalls = documentOf(calls)
		}
		row.Messages = append(row.Messages, cells)
	}
	if conversation.Tools != nil {
		tools, err := json.Marshal(conversation.Tools)
		if err != nil {
			return Messages{}, fmt.Errorf("tools: %w", err)
		}
		row.Tools = documentOf(tools)
	}
	return row, nil
}

// MarshalJSONTo writes the conversation.
func (r Messages) MarshalJSONTo(enc *jsontext.Encoder) error {
	return r.conversation.MarshalJSONTo(enc)
}

// Size implements [Row].
func (r Messages) Size() int {
	n := 256 + len(r.Tools)
	for i := range r.Messages {
		n += 64 + len(r.Messages[i].Content) + len(r.Messages[i].ToolCalls)
	}
	return n
}
