package main

import (
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/parquet-go/parquet-go"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// exportRow is a row of an exported file.
type exportRow interface {
	// size is about how many bytes of memory the row takes.
	size() int
}

// rowOrigin says where a row comes from.
type rowOrigin struct {
	RolloutID   string  `json:"rollout_id" parquet:"rollout_id"`
	AttemptID   string  `json:"attempt_id" parquet:"attempt_id"`
	Mode        *string `json:"mode" parquet:"mode,optional"`
	ResourcesID *string `json:"resources_id" parquet:"resources_id,optional"`
}

func originOf(r *agl.AttemptedRollout) rowOrigin {
	origin := rowOrigin{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, ResourcesID: pointer(r.ResourcesID)}
	if r.Mode != agl.ModeNone {
		origin.Mode = new(string(r.Mode))
	}
	return origin
}

// pointer is nil for null.
func pointer[T any](n agl.Null[T]) *T {
	if !n.Valid {
		return nil
	}
	return &n.V
}

// tripletRow is a model call.
type tripletRow struct {
	rowOrigin

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

func newTripletRow(origin rowOrigin, t *adapter.Triplet) tripletRow {
	return tripletRow{
		rowOrigin: origin, SpanID: t.Call.SpanID, SequenceID: t.Call.SequenceID, ResponseID: pointer(t.Metadata.ResponseID),
		AgentName: pointer(t.Metadata.AgentName), ModelVersion: t.Call.Version, FinishReason: t.Call.FinishReason,
		PromptTokenIDs: t.Prompt.TokenIDs, ResponseTokenIDs: t.Response.TokenIDs, Logprobs: t.Call.Logprobs,
		Prompt: documentOf(t.Prompt.RawContent), Response: documentOf(t.Response.RawContent), Reward: pointer(t.Reward),
	}
}

// document is JSON in a column. Parquet files hold it as text. What is not there
// is the document null.
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

func (r tripletRow) size() int {
	return 256 + 4*(len(r.PromptTokenIDs)+len(r.ResponseTokenIDs)+len(r.Logprobs)) + len(r.Prompt) + len(r.Response)
}

// trajectoryRow is a sequence of tokens to train on.
type trajectoryRow struct {
	rowOrigin

	Index         int32      `json:"index" parquet:"index"` // in the attempt, from 0
	TokenIDs      []int32    `json:"token_ids" parquet:"token_ids,list"`
	Mask          []bool     `json:"mask" parquet:"mask,list"`
	Logprobs      []float32  `json:"logprobs" parquet:"logprobs,list"`
	Reward        *float64   `json:"reward" parquet:"reward,optional"`
	AttemptReward *float64   `json:"attempt_reward" parquet:"attempt_reward,optional"`
	ModelVersions []string   `json:"model_versions" parquet:"model_versions,list"`
	Replies       []replyRow `json:"replies" parquet:"replies,list"`
}

// replyRow is the part of a trajectory that one call wrote.
type replyRow struct {
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

func newTrajectoryRow(origin rowOrigin, index int, t *adapter.Trajectory, attempt agl.Null[float64]) trajectoryRow {
	row := trajectoryRow{
		rowOrigin: origin, Index: int32(index), TokenIDs: t.TokenIDs, Mask: t.Mask, Logprobs: t.Logprobs,
		Reward: pointer(t.Reward), AttemptReward: pointer(attempt), ModelVersions: t.Versions(),
	}
	for i := range t.Replies {
		reply := &t.Replies[i]
		row.Replies = append(row.Replies, replyRow{
			Start: int32(reply.Start), End: int32(reply.End), SpanID: reply.SpanID, SequenceID: reply.SequenceID,
			ResponseID: pointer(reply.ResponseID), AgentName: pointer(reply.AgentName), FinishReason: reply.FinishReason,
			HasLogprobs: reply.HasLogprobs(), Reward: pointer(reply.Reward),
		})
	}
	return row
}

func (r trajectoryRow) size() int { return 256 + 9*len(r.TokenIDs) + 160*len(r.Replies) }

// messagesRow is a conversation. In JSON it is the conversation alone, in the
// form of OpenAI's fine-tuning files, which have no place for anything else.
type messagesRow struct {
	rowOrigin

	Messages []messageRow `parquet:"messages,list"`
	Tools    document     `parquet:"tools,json"`
	Reward   *float64     `parquet:"reward,optional"` // the attempt's

	conversation adapter.Conversation
}

type messageRow struct {
	Role       string   `parquet:"role"`
	Content    document `parquet:"content,json"`
	ToolCalls  document `parquet:"tool_calls,json"`
	ToolCallID *string  `parquet:"tool_call_id,optional"`
}

func newMessagesRow(origin rowOrigin, conversation adapter.Conversation, reward agl.Null[float64]) (messagesRow, error) {
	row := messagesRow{rowOrigin: origin, Tools: documentOf(nil), Reward: pointer(reward), conversation: conversation}
	for i := range conversation.Messages {
		message := &conversation.Messages[i]
		cells := messageRow{Role: message.Role, Content: documentOf(message.Content), ToolCalls: documentOf(nil)}
		if message.ToolCallID != "" {
			cells.ToolCallID = &message.ToolCallID
		}
		if len(message.ToolCalls) > 0 {
			calls, err := json.Marshal(message.ToolCalls)
			if err != nil {
				return messagesRow{}, fmt.Errorf("tool calls: %w", err)
			}
			cells.ToolCalls = documentOf(calls)
		}
		row.Messages = append(row.Messages, cells)
	}
	if conversation.Tools != nil {
		tools, err := json.Marshal(conversation.Tools)
		if err != nil {
			return messagesRow{}, fmt.Errorf("tools: %w", err)
		}
		row.Tools = documentOf(tools)
	}
	return row, nil
}

// MarshalJSONTo writes the conversation.
func (r messagesRow) MarshalJSONTo(enc *jsontext.Encoder) error {
	return r.conversation.MarshalJSONTo(enc)
}

func (r messagesRow) size() int {
	n := 256 + len(r.Tools)
	for i := range r.Messages {
		n += 64 + len(r.Messages[i].Content) + len(r.Messages[i].ToolCalls)
	}
	return n
}

// rowWriter writes rows to a file.
type rowWriter[T exportRow] interface {
	write(rows []T) error
	// close completes the file. It leaves what is below the writer open.
	close() error
}

func newRowWriter[T exportRow](w io.Writer, asParquet bool) rowWriter[T] {
	if asParquet {
		return &parquetRows[T]{to: parquet.NewGenericWriter[T](w, parquet.Compression(&parquet.Zstd))}
	}
	return jsonRows[T]{to: w}
}

// jsonRows writes JSON Lines.
type jsonRows[T exportRow] struct{ to io.Writer }

func (w jsonRows[T]) write(rows []T) error {
	for i := range rows {
		line, err := json.Marshal(&rows[i])
		if err != nil {
			return fmt.Errorf("write a row: %w", err)
		}
		if _, err := w.to.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

func (jsonRows[T]) close() error { return nil }

// groupBytes is about how large a row group is, which is kept in memory until it
// is written.
const groupBytes = 64 << 20

// parquetRows writes a Parquet file.
type parquetRows[T exportRow] struct {
	to      *parquet.GenericWriter[T]
	pending int
}

func (w *parquetRows[T]) write(rows []T) error {
	if len(rows) == 0 {
		return nil
	}
	if _, err := w.to.Write(rows); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	for i := range rows {
		w.pending += rows[i].size()
	}
	if w.pending < groupBytes {
		return nil
	}
	w.pending = 0
	if err := w.to.Flush(); err != nil {
		return fmt.Errorf("write a row group: %w", err)
	}
	return nil
}

func (w *parquetRows[T]) close() error { return w.to.Close() }
