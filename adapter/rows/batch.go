package rows

import (
	"archive/zip"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// Level says what one row of a batch is.
type Level string

// The levels.
const (
	TrajectoryLevel Level = "trajectory" // calls that continue one another are one row
	TransitionLevel Level = "transition" // each call is a row
)

// Sequences returns the rows of a batch for a rollout's latest attempt. An attempt without a reward has none, and
// calls without tokens or reply are left out. The spans were queried for the source's adapter, or are whole.
func Sequences(r *agl.AttemptedRollout, spans agl.ShortSpans, source Source, level Level) ([]adapter.Sequence, error) {
	merged, err := agl.AdaptSpans(adapter.Trajectories{Source: source.Adapter()}, spans)
	if err != nil {
		return nil, err
	}
	group := groupOf(&r.Rollout)
	if level != TransitionLevel {
		return merged.Sequences(group, r.RolloutID, r.Attempt.AttemptID), nil
	}
	if !merged.Reward.Valid {
		return nil, nil
	}
	triplets, err := agl.AdaptSpans(source.Adapter(), spans)
	if err != nil {
		return nil, err
	}
	var out []adapter.Sequence
	for i := range triplets {
		t := &triplets[i]
		if len(t.Prompt.TokenIDs) == 0 || len(t.Response.TokenIDs) == 0 || t.Call.Failed || t.Call.Undelivered {
			continue
		}
		s := adapter.Sequence{
			Group: group, RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Turn: len(out), Prompt: t.Prompt.TokenIDs,
			Response: t.Response.TokenIDs, Score: merged.Reward.V,
		}
		if len(t.Call.Logprobs) == len(s.Response) {
			s.Logprobs = t.Call.Logprobs
		}
		out = append(out, s)
	}
	return out, nil
}

// groupOf names the rollouts whose rewards are compared: those with the same data_id in their metadata, which a
// trainer may set, or else those with an equal input.
func groupOf(r *agl.Rollout) string {
	var metadata struct {
		DataID string `json:"data_id"`
	}
	if json.Unmarshal(r.Metadata, &metadata) == nil && metadata.DataID != "" {
		return metadata.DataID
	}
	input := jsontext.Value(append([]byte(nil), r.Input...))
	_ = input.Canonicalize() // an input that has no canonical form is compared byte for byte
	sum := sha256.Sum256(input)
	return hex.EncodeToString(sum[:8])
}

// BatchRow is a row of a batch in a table.
type BatchRow struct {
	UID              string    `json:"uid" parquet:"uid"`
	RolloutID        string    `json:"rollout_id" parquet:"rollout_id"`
	AttemptID        string    `json:"attempt_id" parquet:"attempt_id"`
	Turn             int64     `json:"turn_index" parquet:"turn_index"`
	Dropped          bool      `json:"is_drop_mask" parquet:"is_drop_mask"`
	Prompts          []int64   `json:"prompts" parquet:"prompts,list"`
	Responses        []int64   `json:"responses" parquet:"responses,list"`
	InputIDs         []int64   `json:"input_ids" parquet:"input_ids,list"`
	AttentionMask    []int64   `json:"attention_mask" parquet:"attention_mask,list"`
	PositionIDs      []int64   `json:"position_ids" parquet:"position_ids,list"`
	ResponseMask     []int64   `json:"response_mask" parquet:"response_mask,list"`
	TokenLevelScores []float32 `json:"token_level_scores" parquet:"token_level_scores,list"`
	RolloutLogProbs  []float32 `json:"rollout_log_probs" parquet:"rollout_log_probs,list"`
}

// Size implements [Row].
func (r BatchRow) Size() int { return 256 + 8*4*len(r.InputIDs) + 16*len(r.Responses) }

// BatchRows returns the rows of a batch.
func BatchRows(b *adapter.Batch) []BatchRow {
	out := make([]BatchRow, b.Rows)
	wide := b.P + b.R
	for i := range out {
		out[i] = BatchRow{
			UID: b.UIDs[i], RolloutID: b.RolloutIDs[i], AttemptID: b.AttemptIDs[i], Turn: b.Turns[i], Dropped: b.Dropped[i],
			Prompts: b.Prompts[i*b.P : (i+1)*b.P], Responses: b.Responses[i*b.R : (i+1)*b.R], InputIDs: b.InputIDs[i*wide : (i+1)*wide],
			AttentionMask: b.AttentionMask[i*wide : (i+1)*wide], PositionIDs: b.PositionIDs[i*wide : (i+1)*wide],
			ResponseMask: b.ResponseMask[i*b.R : (i+1)*b.R], TokenLevelScores: b.TokenLevelScores[i*b.R : (i+1)*b.R],
			RolloutLogProbs: b.RolloutLogProbs[i*b.R : (i+1)*b.R],
		}
	}
	return out
}

// WriteNPZ writes a batch as a file for numpy.load: an array for each field of DataProto, in VERL's types.
//
// The format is that of numpy.lib.format, version 1.0.
func WriteNPZ(w io.Writer, b *adapter.Batch) error {
	z := zip.NewWriter(w)
	wide := b.P + b.R
	for _, a := range []struct {
		name    string
		columns int // negative for a list
		values  any
	}{
		{"prompts", b.P, b.Prompts}, {"responses", b.R, b.Responses}, {"input_ids", wide, b.InputIDs}, {"attention_mask", wide, b.AttentionMask},
		{"position_ids", wide, b.PositionIDs}, {"response_mask", b.R, b.ResponseMask}, {"token_level_scores", b.R, b.TokenLevelScores},
		{"rollout_log_probs", b.R, b.RolloutLogProbs}, {"uid", -1, b.UIDs}, {"rollout_id", -1, b.RolloutIDs}, {"attempt_id", -1, b.AttemptIDs},
		{"turn_index", -1, b.Turns}, {"is_drop_mask", -1, b.Dropped},
	} {
		to, err := z.Create(a.name + ".npy")
		if err != nil {
			return err
		}
		shape := fmt.Sprintf("(%d,)", b.Rows)
		if a.columns >= 0 {
			shape = fmt.Sprintf("(%d, %d)", b.Rows, a.columns)
		}
		if err := writeArray(to, shape, a.values); err != nil {
			return fmt.Errorf("%s: %w", a.name, err)
		}
	}
	return z.Close()
}

// writeArray writes one array with its header, little-endian and row by row.
func writeArray(w io.Writer, shape string, values any) error {
	kind, data := "", values
	switch values := values.(type) {
	case []int64:
		kind = "<i8"
	case []float32:
		kind = "<f4"
	case []bool:
		kind = "|b1"
	case []string:
		most := 1
		for _, text := range values {
			most = max(most, utf8.RuneCountInString(text))
		}
		runes := make([]int32, 0, most*len(values))
		for _, text := range values {
			padded := append([]rune(text), make([]rune, most-utf8.RuneCountInString(text))...)
			runes = append(runes, padded...)
		}
		kind, data = fmt.Sprintf("<U%d", most), runes
	}
	header := "{'descr': '" + kind + "', 'fortran_order': False, 'shape': " + shape + ", }"
	const magic, length, align = "\x93NUMPY\x01\x00", 2, 64
	header += strings.Repeat(" ", align-1-(len(magic)+length+len(header))%align) + "\n"
	if _, err := io.WriteString(w, magic); err != nil {
		return err
	}
	if err := binary.Write(w, binary.LittleEndian, uint16(len(header))); err != nil {
		return err
	}
	if _, err := io.WriteString(w, header); err != nil {
		return err
	}
	return binary.Write(w, binary.LittleEndian, data)
}
