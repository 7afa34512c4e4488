package gateway

import (
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// This file reads values of JSON as the clients, which are programs of Python, do.

// falsy reports whether a value is false in Python.
func falsy(v jsontext.Value) bool {
	switch v.Kind() {
	case 'n', 'f':
		return true
	case '[', '{':
		return rawjson.SkipSpace(v, 1) == len(v)-1
	case '"':
		return len(v) == len(`""`)
	case '0':
		f, ok := finite(v)
		return ok && f == 0
	default:
		return false
	}
}

// floatOf converts a value as Python's float does, to a finite number.
func floatOf(v jsontext.Value) (float64, bool) {
	if v.Kind() == '"' {
		f, err := strconv.ParseFloat(rawjson.Unquote(v), 64)
		return f, err == nil && f-f == 0
	}
	return rawjson.Number(v)
}

// finite reads a JSON number.
func finite(raw jsontext.Value) (float64, bool) {
	if raw.Kind() != '0' {
		return 0, false
	}
	f, err := strconv.ParseFloat(string(raw), 64)
	return f, err == nil && !math.IsInf(f, 0)
}
