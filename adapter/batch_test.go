package adapter_test

import (
	"errors"
	"math"
	"os"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// matrix cuts a matrix into rows.
func matrix[T any](values []T, columns int) [][]T {
	var rows [][]T
	for i := 0; i < len(values); i += columns {
		rows = append(rows, values[i:i+columns])
	}
	return rows
}

// TestBatch compares with what Agent-lightning's daemon makes of the same calls; see
// testdata/batch.py.
func TestBatch(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile("testdata/batch.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Level          string `json:"level"`
		PromptLength   int    `json:"prompt_length"`
		ResponseLength int    `json:"response_length"`
		Rollouts       []struct {
			ID     string       `json:"id"`
			Group  string       `json:"group"`
			Reward float64      `json:"reward"`
			Calls  [][2][]int32 `json:"calls"`
		} `json:"rollouts"`
		Want struct {
			Prompts          [][]int64   `json:"prompts"`
			Responses        [][]int64   `json:"responses"`
			InputIDs         [][]int64   `json:"input_ids"`
			AttentionMask    [][]int64   `json:"attention_mask"`
			PositionIDs      [][]int64   `json:"position_ids"`
			ResponseMask     [][]int64   `json:"response_mask"`
			Dropped          []bool      `json:"is_drop_mask"`
			TokenLevelScores [][]float32 `json:"token_level_scores"`
			Groups           []string    `json:"data_id_list"`
			Rollouts         []string    `json:"rollout_id_list"`
			Turns            []int64     `json:"turn_index_list"`
		} `json:"want"`
	}
	if err := json.Unmarshal(raw, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		var sequences []adapter.Sequence
		for _, r := range c.Rollouts {
			var triplets []adapter.Triplet
			for i, call := range r.Calls {
				triplets = append(triplets, adapter.Triplet{Prompt: adapter.Prompt{TokenIDs: call[0]}, Response: adapter.Response{TokenIDs: call[1]}})
				if c.Level == "transition" {
					sequences = append(sequences, adapter.Sequence{Group: r.Group, RolloutID: r.ID, Turn: i, Prompt: call[0], Response: call[1], Score: r.Reward})
				}
			}
			if c.Level == "trajectory" {
				merged := adapter.Merge(triplets)
				merged.Reward = agl.Some(r.Reward)
				sequences = append(sequences, merged.Sequences(r.Group, r.ID, "a")...)
			}
		}
		b, err := adapter.NewBatch(sequences, adapter.BatchConfig{PromptLength: c.PromptLength, ResponseLength: c.ResponseLength, Pad: 9})
		if err != nil {
			t.Fatal(err)
		}
		check := func(name string, got, want any) {
			t.Helper()
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s %d: %s:\n got %v\nwant %v", c.Level, c.PromptLength, name, got, want)
			}
		}
		wide := b.P + b.R
		check("prompts", matrix(b.Prompts, b.P), c.Want.Prompts)
		check("responses", matrix(b.Responses, b.R), c.Want.Responses)
		check("input_ids", matrix(b.InputIDs, wide), c.Want.InputIDs)
		check("attention_mask", matrix(b.AttentionMask, wide), c.Want.AttentionMask)
		check("position_ids", matrix(b.PositionIDs, wide), c.Want.PositionIDs)
		check("token_level_scores", matrix(b.TokenLevelScores, b.R), c.Want.TokenLevelScores)
		check("is_drop_mask", b.Dropped, c.Want.Dropped)
		check("groups", b.UIDs, c.Want.Groups)
		check("rollouts", b.RolloutIDs, c.Want.Rollouts)
		if c.Level == "transition" {
			check("turns", b.Turns, c.Want.Turns)
		} else {
			check("response_mask", matrix(b.ResponseMask, b.R), c.Want.ResponseMask)
		}
	}
}

func TestBatchLengths(t *testing.T) {
	t.Parallel()
	one := adapter.Sequence{Prompt: []int32{1, 2}, Response: []int32{3}, Logprobs: []float32{-0.5}}
	b, err := adapter.NewBatch([]adapter.Sequence{one, {Prompt: []int32{1}, Response: []int32{4, 5, 6}}}, adapter.BatchConfig{})
	if err != nil || b.P != 2 || b.R != 3 || !reflect.DeepEqual(b.RolloutLogProbs, []float32{-0.5, 0, 0, 0, 0, 0}) {
		t.Errorf("the longest: got %+v, %v", b, err)
	}
	for name, bad := range map[string]adapter.Sequence{
		"response": {Prompt: []int32{1}}, "mask": {Response: []int32{1}, Mask: []bool{}}, "logprobs": {Response: []int32{1}, Logprobs: []float32{1, 2}},
	} {
		if _, err := adapter.NewBatch([]adapter.Sequence{bad}, adapter.BatchConfig{}); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
	if _, err := adapter.NewBatch(nil, adapter.BatchConfig{PromptLength: -1}); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("a negative length: got %v", err)
	}
	many := make([]adapter.Sequence, 300)
	for i := range many {
		many[i] = adapter.Sequence{Response: []int32{1}}
	}
	for want, c := range map[string]adapter.BatchConfig{
		"batch: lengths: got 10 and 9223372036854775807, must be from 0 to 16777216":                       {PromptLength: 10, ResponseLength: math.MaxInt},
		"batch: 300 sequences in 16777217 columns, must be at most 4294967296 cells; give shorter lengths": {PromptLength: 1 << 24},
	} {
		if _, err := adapter.NewBatch(many, c); !errors.Is(err, agl.ErrInvalid) || err.Error() != want {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if b, err := adapter.NewBatch(nil, adapter.BatchConfig{}); err != nil || b.Rows != 0 {
		t.Errorf("no rows: got %+v, %v", b, err)
	}
}
