package openai

import (
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// Usage is the backend's count of the tokens of a call.
type Usage struct {
	Prompt     int64 // including those from a cache
	Completion int64
	Total      int64 // 0 when the backend does not say; see [Usage.Sum]
}

// ParseUsage reads the member usage of a reply, or of an event of a stream, of any
// API. ok is false for a value without counts, such as null, and for one whose counts
// are no numbers of tokens: a part of them would be less than was used.
//
// Anthropic reports tokens that a cache read or wrote separately from input_tokens. They
// count as part of the prompt.
func ParseUsage(raw []byte) (_ Usage, ok bool) {
	var u Usage
	cached, wrong := int64(0), false
	Members(raw, func(name, value []byte) {
		n, good := TokenCount(value)
		given := !rawjson.IsNull(value)
		switch string(name) {
		case "prompt_tokens", "input_tokens":
			u.Prompt, ok = n, good || ok
		case "cache_creation_input_tokens", "cache_read_input_tokens":
			cached += n
		case "completion_tokens", "output_tokens":
			u.Completion, ok = n, good || ok
		case "total_tokens":
			u.Total = n
		default:
			given = false
		}
		wrong = wrong || given && !good
	})
	u.Prompt += cached
	if !ok || wrong {
		return Usage{}, false
	}
	return u, true
}

// TokenCount reads a number of tokens, which some servers write as 3.0. ok is false for anything else.
func TokenCount(raw []byte) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	if err != nil && jsontext.Value(raw).Kind() == '0' {
		var f float64
		if f, ok = rawjson.Number(raw); ok && f == math.Trunc(f) && f <= mostTokens {
			n, err = int64(f), nil
		}
	}
	if err != nil || n < 0 || n > mostTokens {
		return 0, false
	}
	return n, true
}

// mostTokens bounds what counts as a number of tokens: no call has more, and sums of such numbers do not overflow.
const mostTokens = 1 << 40

// Sum returns the tokens of prompt and reply: Total if it is known.
func (u Usage) Sum() int64 {
	if u.Total > 0 {
		return u.Total
	}
	return u.Prompt + u.Completion
}
