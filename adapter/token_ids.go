package adapter

import (
	"bytes"
	"math"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// elements returns the elements of a raw list, nil when raw is not a list.
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

// stringMember returns a member of a raw object if it is a string.
func stringMember(object jsontext.Value, key string) (string, bool) {
	raw, ok := rawjson.Get(object, key)
	if !ok {
		return "", false
	}
	return stringValue(raw)
}

// tokenIDs reads a list of 32-bit integers. As in Python, true is 1 and false is 0. It rejects text that is not JSON,
// and lists of anything else. It does not use a JSON decoder, because token ids are most of what adapters read.
func tokenIDs(raw []byte) ([]int32, bool) {
	list, ok := listText(raw)
	if !ok {
		return nil, false
	}
	if len(list) == 0 {
		return []int32{}, true
	}
	return appendTokenIDs(make([]int32, 0, 1+bytes.Count(list, comma())), list)
}

func comma() []byte { return []byte(",") }

// listText returns what is between the brackets of a list, trimmed.
func listText(raw []byte) ([]byte, bool) {
	list := bytes.Trim(raw, spaces)
	if len(list) < 2 || list[0] != '[' || list[len(list)-1] != ']' {
		return nil, false
	}
	return bytes.Trim(list[1:len(list)-1], spaces), true
}

// appendTokenIDs appends the ids of a non-empty list, given without its brackets.
func appendTokenIDs(ids []int32, list []byte) ([]int32, bool) {
	for {
		// Nearly all lists are digits and commas.
		n, i := int64(0), 0
		for i < len(list) && i < 9 && '0' <= list[i] && list[i] <= '9' {
			n, i = n*10+int64(list[i]-'0'), i+1
		}
		if i > 0 && (i == len(list) || list[i] == ',') && (list[0] != '0' || i == 1) {
			ids = append(ids, int32(n))
		} else {
			if i = bytes.IndexByte(list, ','); i < 0 {
				i = len(list)
			}
			id, ok := tokenID(bytes.Trim(list[:i], spaces))
			if !ok {
				return nil, false
			}
			ids = append(ids, id)
		}
		if i == len(list) {
			return ids, true
		}
		list = list[i+1:]
	}
}

// spaces is the white space of JSON.
const spaces = " \t\r\n"

func tokenID(text []byte) (int32, bool) {
	switch string(text) {
	case "true":
		return 1, true
	case "false":
		return 0, true
	}
	digits := bytes.TrimPrefix(text, []byte("-"))
	if len(digits) == 0 || len(digits) > 1 && digits[0] == '0' {
		return 0, false
	}
	var n int64
	for _, c := range digits {
		if n = n*10 + int64(c-'0'); c < '0' || c > '9' || n > math.MaxInt32 {
			return 0, false
		}
	}
	if len(digits) < len(text) {
		n = -n
	}
	return int32(n), true
}

// contentLogprobs returns the logprob of each object in a raw list; nil unless there are exactly n.
func contentLogprobs(content jsontext.Value, n int) []float32 {
	return logprobs(content, n, func(token jsontext.Value) jsontext.Value {
		value, _ := rawjson.Get(token, "logprob")
		return value
	})
}

// listLogprobs returns the numbers in a raw list; nil unless there are exactly n.
func listLogprobs(list jsontext.Value, n int) []float32 {
	return logprobs(list, n, func(number jsontext.Value) jsontext.Value { return number })
}

func logprobs(list jsontext.Value, n int, of func(element jsontext.Value) jsontext.Value) []float32 {
	if n == 0 || list.Kind() != '[' {
		return nil
	}
	values := make([]float32, 0, n)
	count := 0
	complete := rawjson.EachElement(list, func(element []byte) {
		count++
		number := of(element)
		if value, err := strconv.ParseFloat(string(number), 64); err == nil && number.Kind() == '0' {
			values = append(values, float32(value))
		}
	})
	if !complete || count != n || len(values) != n {
		return nil
	}
	return values
}

// firstTokenIDs returns the value of the first key that has a list of token ids; an empty list if none has.
func (a attributes) firstTokenIDs(keys ...string) []int32 {
	for _, key := range keys {
		raw, ok := a.get(key)
		if !ok {
			continue
		}
		if ids, ok := tokenIDs(raw); ok {
			return ids
		}
	}
	return []int32{}
}

// literalTokenIDs returns the value of key if it is a list of token ids, or text that spells one. read parses the
// list.
func (a attributes) literalTokenIDs(key string, read func(list []byte) ([]int32, bool)) []int32 {
	raw, ok := a.get(key)
	if !ok {
		return nil
	}
	return literalTokenIDs(raw, read)
}

func literalTokenIDs(raw jsontext.Value, read func(list []byte) ([]int32, bool)) []int32 {
	if text, ok := textValue(raw); ok {
		if ids, ok := read(text); ok {
			return ids
		}
	}
	value, err := literalValue(raw)
	if err != nil {
		return nil // text that is not a list
	}
	ids, _ := read(value)
	return ids
}

// firstTokenIDs returns the first list of a list of lists of token ids, or of text that spells one.
func firstTokenIDs(raw jsontext.Value) []int32 {
	if text, ok := textValue(raw); ok && bytes.HasPrefix(text, []byte("[[")) && bytes.HasSuffix(text, []byte("]]")) {
		if ids, ok := tokenIDs(text[1 : len(text)-1]); ok {
			return ids
		}
	}
	value, err := literalValue(raw)
	if err != nil {
		return nil // text that is not a list
	}
	lists := elements(value)
	if len(lists) == 0 {
		return nil
	}
	ids, _ := tokenIDs(lists[0])
	return ids
}

// literalValue returns the value that text spells, and any other value as it is.
func literalValue(raw jsontext.Value) (jsontext.Value, error) {
	text, ok := stringValue(raw)
	if !ok {
		return raw, nil
	}
	return readLiteral(text)
}
