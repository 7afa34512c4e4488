package adapter

import (
	"bytes"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// elements returns the elements of a raw list, nil when raw is none.
func elements(raw jsontext.Value) []jsontext.Value {
	if raw.Kind() != '[' {
		return nil
	}
	var list []jsontext.Value
	if json.Unmarshal(raw, &list, agl.JSONOptions()) != nil {
		return nil
	}
	return list
}

// stringMember returns a member of a raw object that is a string.
func stringMember(object jsontext.Value, key string) (string, bool) {
	raw, ok := agl.GetMember(object, key)
	if !ok {
		return "", false
	}
	return stringValue(raw)
}

// tokenIDs reads a list of integers that fit. As in Python, true is 1 and false
// is 0.
func tokenIDs(raw jsontext.Value) ([]int32, bool) {
	if raw.Kind() != '[' {
		return nil, false
	}
	s := intScanner{raw: raw}
	return s.list()
}

// intScanner reads a JSON list of integers. Token ids are most of what the
// adapters read, so this must be quick.
type intScanner struct {
	raw []byte
	at  int
}

func (s *intScanner) peek() byte {
	for s.at < len(s.raw) {
		switch c := s.raw[s.at]; c {
		case ' ', '\t', '\n', '\r':
			s.at++
		default:
			return c
		}
	}
	return 0
}

func (s *intScanner) list() ([]int32, bool) {
	ids := make([]int32, 0, len(s.raw)/6)
	s.peek()
	s.at++
	if s.peek() == ']' {
		return ids, true
	}
	for {
		id, ok := s.one()
		if !ok {
			return nil, false
		}
		ids = append(ids, id)
		switch s.peek() {
		case ',':
			s.at++
		case ']':
			return ids, true
		default:
			return nil, false
		}
	}
}

func (s *intScanner) one() (int32, bool) {
	c := s.peek()
	if c == 't' || c == 'f' {
		return s.boolean()
	}
	negative := c == '-'
	if negative {
		s.at++
	}
	start := s.at
	var n int64
	for s.at < len(s.raw) && '0' <= s.raw[s.at] && s.raw[s.at] <= '9' {
		n = n*10 + int64(s.raw[s.at]-'0')
		if n > math.MaxInt32 {
			return 0, false
		}
		s.at++
	}
	if negative {
		n = -n
	}
	return int32(n), s.at > start
}

func (s *intScanner) boolean() (int32, bool) {
	switch rest := s.raw[s.at:]; {
	case bytes.HasPrefix(rest, []byte("true")):
		s.at += len("true")
		return 1, true
	case bytes.HasPrefix(rest, []byte("false")):
		s.at += len("false")
		return 0, true
	default:
		return 0, false
	}
}

// contentLogprobs returns the logprob of each object in a raw list, nil unless
// there are n of them.
func contentLogprobs(content jsontext.Value, n int) []float32 {
	if n == 0 || content.Kind() != '[' {
		return nil
	}
	var tokens []struct {
		Logprob *float64 `json:"logprob"`
	}
	if json.Unmarshal(content, &tokens, agl.JSONOptions()) != nil || len(tokens) != n {
		return nil
	}
	values := make([]float32, n)
	for i, token := range tokens {
		if token.Logprob == nil {
			return nil
		}
		values[i] = float32(*token.Logprob)
	}
	return values
}

// listLogprobs returns the numbers of a raw list, nil unless there are n of
// them.
func listLogprobs(list jsontext.Value, n int) []float32 {
	if n == 0 || list.Kind() != '[' {
		return nil
	}
	var numbers []*float64
	if json.Unmarshal(list, &numbers, agl.JSONOptions()) != nil || len(numbers) != n {
		return nil
	}
	values := make([]float32, n)
	for i, number := range numbers {
		if number == nil {
			return nil
		}
		values[i] = float32(*number)
	}
	return values
}
