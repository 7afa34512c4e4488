package adapter

import (
	"bytes"
	"errors"
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// elements returns the elements of a raw list, nil when raw is none.
func elements(raw jsontext.Value) []jsontext.Value {
	if raw.Kind() != '[' {
		return nil
	}
	var list []jsontext.Value
	if json.Unmarshal(raw, &list, rawjson.Options()) != nil {
		return nil
	}
	return list
}

// stringMember returns a member of a raw object that is a string.
func stringMember(object jsontext.Value, key string) (string, bool) {
	raw, ok := rawjson.Get(object, key)
	if !ok {
		return "", false
	}
	return stringValue(raw)
}

// tokenIDs reads a list of integers that fit. As in Python, true is 1 and false
// is 0. Of text that is not known to be JSON it takes nothing that JSON does not
// allow.
func tokenIDs(raw jsontext.Value) ([]int32, bool) {
	if raw.Kind() != '[' {
		return nil, false
	}
	s := intScanner{raw: raw}
	ids, ok := s.list()
	s.peek()
	return ids, ok && s.at == len(s.raw)
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
	s.peek()
	s.at++
	if s.peek() == ']' {
		s.at++
		return []int32{}, true
	}
	ids := make([]int32, 0, 1+bytes.Count(s.raw, []byte(",")))
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
			s.at++
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
	leadingZero := s.at > start+1 && s.raw[start] == '0'
	return int32(n), s.at > start && !leadingZero
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
	tokens := tokenLogprobs{values: make([]float32, 0, n)}
	if json.Unmarshal(content, &tokens, rawjson.Options()) != nil || len(tokens.values) != n {
		return nil
	}
	return tokens.values
}

var errNoLogprob = errors.New("a token without a logprob")

// tokenLogprobs is read from a list of objects with a logprob each. Only the
// logprobs are decoded: there may be much more in the objects.
type tokenLogprobs struct{ values []float32 }

func (l *tokenLogprobs) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if _, err := dec.ReadToken(); err != nil {
		return err
	}
	for dec.PeekKind() == '{' {
		token, err := dec.ReadValue()
		if err != nil {
			return err
		}
		raw, _ := rawjson.Get(token, "logprob")
		if raw.Kind() != '0' {
			return errNoLogprob
		}
		value, err := strconv.ParseFloat(string(raw), 64)
		if err != nil {
			return err
		}
		l.values = append(l.values, float32(value))
	}
	_, err := dec.ReadToken()
	return err
}

// listLogprobs returns the numbers of a raw list, nil unless there are n of
// them.
func listLogprobs(list jsontext.Value, n int) []float32 {
	if n == 0 || list.Kind() != '[' {
		return nil
	}
	var numbers []*float64
	if json.Unmarshal(list, &numbers, rawjson.Options()) != nil || len(numbers) != n {
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
