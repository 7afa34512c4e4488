package adapter

import (
	"math"

	"github.com/agl-go/agl"
)

// Sequence is one row of a [Batch]: a prompt and the model's response.
type Sequence struct {
	// Group is the same for sequences whose rewards are compared: the samples of one task.
	Group                string
	RolloutID, AttemptID string
	// Turn is the sequence's index among those of the attempt, from 0.
	Turn             int
	Prompt, Response []int32
	// Mask is true for the tokens of Response that the model wrote; nil is all of them.
	Mask []bool
	// Logprobs are the log-probabilities of Response under the model that sampled it; nil is unknown.
	Logprobs []float32
	Score    float64
}

// Sequences returns a row for each trajectory of an attempt. The prompt is what comes before the first reply, and the
// score is the attempt's final reward. Without a reward there are no rows.
func (m *Merged) Sequences(group, rolloutID, attemptID string) []Sequence {
	if !m.Reward.Valid {
		return nil
	}
	out := make([]Sequence, len(m.Trajectories))
	for i := range m.Trajectories {
		t := &m.Trajectories[i]
		start := t.Replies[0].Start
		out[i] = Sequence{
			Group: group, RolloutID: rolloutID, AttemptID: attemptID, Turn: i, Prompt: t.TokenIDs[:start], Response: t.TokenIDs[start:],
			Mask: t.Mask[start:], Logprobs: t.Logprobs[start:], Score: m.Reward.V,
		}
	}
	return out
}

// BatchConfig says how a [Batch] is padded.
type BatchConfig struct {
	// PromptLength and ResponseLength are the numbers of columns for prompts and responses; 0 is the longest one of
	// the batch. Longer prompts and responses lose their ends, and the row of a longer prompt is Dropped.
	PromptLength, ResponseLength int
	// Pad is the token id of the padding.
	Pad int32
}

// Batch holds sequences as padded matrices with the names of VERL's DataProto. Row i of a matrix with n columns
// starts at i·n. P and R are the lengths of prompts and responses.
type Batch struct {
	Rows, P, R int

	Prompts       []int64 // Rows × P, padded on the left
	Responses     []int64 // Rows × R, padded on the right
	InputIDs      []int64 // Rows × (P+R): both side by side
	AttentionMask []int64 // Rows × (P+R): 1 where there is a token
	PositionIDs   []int64 // Rows × (P+R): the index among the tokens; in padding that of the nearest token before it, or 0
	ResponseMask  []int64 // Rows × R: 1 for what the model wrote
	// TokenLevelScores has a sequence's score at its last token, Rows × R.
	TokenLevelScores []float32
	RolloutLogProbs  []float32 // Rows × R: 0 where unknown

	UIDs       []string // the groups
	RolloutIDs []string
	AttemptIDs []string
	Turns      []int64
	Dropped    []bool // the prompt was too long, so the row must not be trained on
}

// maxLength bounds the columns of prompts and of responses, far above the context of any model; maxCells bounds a tensor.
const maxLength, maxCells = 1 << 24, min(1<<32, math.MaxInt/8)

// NewBatch pads sequences. It returns agl.ErrInvalid for a sequence without a response, which has no token for its
// score, for lists of different lengths, and for lengths that are negative or fit into no memory.
//
// The form is that of VERL's DataProto as Agent-lightning's daemon fills it (agentlightning/verl/daemon.py, version
// 0.3), with the log-probabilities of the model that sampled.
func NewBatch(sequences []Sequence, c BatchConfig) (*Batch, error) {
	if longest := max(c.PromptLength, c.ResponseLength); min(c.PromptLength, c.ResponseLength) < 0 || longest > maxLength {
		return nil, agl.Errorf(agl.CodeInvalid, "batch: lengths: got %d and %d, must be from 0 to %d", c.PromptLength, c.ResponseLength, maxLength)
	}
	b := &Batch{Rows: len(sequences), P: c.PromptLength, R: c.ResponseLength}
	for i := range sequences {
		s := &sequences[i]
		switch {
		case len(s.Response) == 0:
			return nil, agl.Errorf(agl.CodeInvalid, "batch: sequences[%d], rollout %q: it has no response", i, s.RolloutID)
		case s.Mask != nil && len(s.Mask) != len(s.Response):
			return nil, agl.Errorf(agl.CodeInvalid, "batch: sequences[%d].mask: got %d, must be the length of the response, %d", i, len(s.Mask), len(s.Response))
		case s.Logprobs != nil && len(s.Logprobs) != len(s.Response):
			return nil, agl.Errorf(agl.CodeInvalid, "batch: sequences[%d].logprobs: got %d, must be the length of the response, %d", i, len(s.Logprobs), len(s.Response))
		}
		if c.PromptLength == 0 {
			b.P = max(b.P, len(s.Prompt))
		}
		if c.ResponseLength == 0 {
			b.R = max(b.R, len(s.Response))
		}
	}
	n, wide := b.Rows, b.P+b.R
	if n > maxCells/max(wide, 1) {
		return nil, agl.Errorf(agl.CodeInvalid, "batch: %d sequences in %d columns, must be at most %d cells; give shorter lengths", n, wide, maxCells)
	}
	b.Prompts, b.Responses = filled(n*b.P, int64(c.Pad)), filled(n*b.R, int64(c.Pad))
	b.InputIDs, b.AttentionMask, b.PositionIDs = filled(n*wide, int64(c.Pad)), make([]int64, n*wide), make([]int64, n*wide)
	b.ResponseMask, b.TokenLevelScores, b.RolloutLogProbs = make([]int64, n*b.R), make([]float32, n*b.R), make([]float32, n*b.R)
	for i := range sequences {
		b.fill(i, &sequences[i])
	}
	return b, nil
}

func filled(n int, v int64) []int64 {
	out := make([]int64, n)
	for i := range out {
		out[i] = v
	}
	return out
}

// fill writes row i.
func (b *Batch) fill(i int, s *Sequence) {
	prompt := s.Prompt[:min(len(s.Prompt), b.P)]
	response := s.Response[:min(len(s.Response), b.R)]
	row := func(m []int64, columns int) []int64 { return m[i*columns : (i+1)*columns] }
	input, attention, positions := row(b.InputIDs, b.P+b.R), row(b.AttentionMask, b.P+b.R), row(b.PositionIDs, b.P+b.R)
	first := b.P - len(prompt)
	for j, id := range prompt {
		input[first+j] = int64(id)
	}
	for j, id := range response {
		input[b.P+j] = int64(id)
		if s.Mask == nil || s.Mask[j] {
			row(b.ResponseMask, b.R)[j] = 1
		}
	}
	copy(row(b.Prompts, b.P), input[:b.P])
	copy(row(b.Responses, b.R), input[b.P:])
	end := b.P + len(response)
	for j := first; j < len(input); j++ {
		if j < end {
			attention[j] = 1
		}
		positions[j] = int64(min(j, end-1) - first)
	}
	if s.Logprobs != nil {
		copy(b.RolloutLogProbs[i*b.R:(i+1)*b.R], s.Logprobs)
	}
	b.TokenLevelScores[i*b.R+len(response)-1] = float32(s.Score)
	b.UIDs, b.RolloutIDs, b.AttemptIDs = append(b.UIDs, s.Group), append(b.RolloutIDs, s.RolloutID), append(b.AttemptIDs, s.AttemptID)
	b.Turns, b.Dropped = append(b.Turns, int64(s.Turn)), append(b.Dropped, len(s.Prompt) > b.P)
}
