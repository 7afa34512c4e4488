package gateway

import (
	"bytes"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// problem is one reason why a request is refused, in FastAPI's form, which clients know.
type problem struct {
	kind, message string
	path          []any // names and indexes
	input         jsontext.Value
	context       jsontext.Value // nil is none
}

// checker reads the parts of a request and collects their problems. Its lenient conversions are those of the original
// server: "12", 12.0 and true are integers.
type checker struct{ problems []problem }

func (c *checker) refuse(kind, message string, input jsontext.Value, path []any) {
	if input == nil {
		input = rawjson.Null()
	}
	c.problems = append(c.problems, problem{kind: kind, message: message, input: input, path: slices.Clone(path)})
}

func at(path []any, more ...any) []any { return append(slices.Clip(path), more...) }

// missing reports whether a required member is missing, and adds that to the problems.
func (c *checker) missing(value, parent jsontext.Value, path []any) bool {
	if value == nil {
		c.refuse("missing", "Field required", parent, path)
	}
	return value == nil
}

// is reports whether a value is of a kind, and adds to the problems that it is not.
func (c *checker) is(wanted jsontext.Kind, problem, message string, raw jsontext.Value, path []any) bool {
	if raw.Kind() != wanted {
		c.refuse(problem, message, raw, path)
	}
	return raw.Kind() == wanted
}

func (c *checker) object(raw jsontext.Value, path []any) bool {
	return c.is('{', "model_attributes_type", "Input should be a valid dictionary or object to extract fields from", raw, path)
}

func (c *checker) dict(raw jsontext.Value, path []any) bool {
	return c.is('{', "dict_type", "Input should be a valid dictionary", raw, path)
}

func (c *checker) list(raw jsontext.Value, path []any) bool {
	return c.is('[', "list_type", "Input should be a valid list", raw, path)
}

func (c *checker) text(raw jsontext.Value, path []any) string {
	if raw.Kind() != '"' {
		c.refuse("string_type", "Input should be a valid string", raw, path)
		return ""
	}
	return rawjson.Unquote(raw)
}

func (c *checker) integer(raw jsontext.Value, path []any) int64 {
	switch raw.Kind() {
	case '"':
		n, err := strconv.ParseInt(strings.TrimSpace(rawjson.Unquote(raw)), 10, 64)
		if err != nil {
			c.refuse("int_parsing", "Input should be a valid integer, unable to parse string as an integer", raw, path)
		}
		return n
	case '0':
		if n, err := strconv.ParseInt(string(raw), 10, 64); err == nil {
			return n
		}
		f, err := strconv.ParseFloat(string(raw), 64)
		const most = 1 << 53
		switch {
		case err != nil || math.Abs(f) > most:
			c.refuse("int_parsing_size", "Unable to parse input string as an integer, exceeded maximum size", raw, path)
		case f != math.Trunc(f):
			c.refuse("int_from_float", "Input should be a valid integer, got a number with a fractional part", raw, path)
		}
		return int64(f)
	case 't':
		return 1
	case 'f':
		return 0
	default:
		c.refuse("int_type", "Input should be a valid integer", raw, path)
		return 0
	}
}

func (c *checker) boolean(raw jsontext.Value, path []any) bool {
	var word string
	switch raw.Kind() {
	case 't', 'f', '0':
		word = string(raw)
	case '"':
		word = strings.ToLower(rawjson.Unquote(raw))
	default:
		c.refuse("bool_type", "Input should be a valid boolean", raw, path)
		return false
	}
	switch word {
	case "true", "1", "1.0", "yes", "y", "on", "t":
		return true
	case "false", "0", "0.0", "no", "n", "off", "f":
		return false
	}
	c.refuse("bool_parsing", "Input should be a valid boolean, unable to interpret input", raw, path)
	return false
}

const stateNames = "'queuing', 'running', 'succeeded' or 'failed'"

func (c *checker) state(raw jsontext.Value, path []any) State {
	if raw.Kind() == '"' {
		if s := State(rawjson.Unquote(raw)); slices.Contains(states(), s) {
			return s
		}
	}
	c.refuse("enum", "Input should be "+stateNames, raw, path)
	c.problems[len(c.problems)-1].context = jsontext.Value(`{"expected":"` + stateNames + `"}`)
	return ""
}

// queryText returns a query parameter's value as JSON.
func queryText(value string) jsontext.Value { return rawjson.AppendString(nil, value) }

// detail returns the error document with the problems.
func (c *checker) detail() []byte {
	out := rawjson.AppendArray([]byte(`{"detail":`), c.problems, func(dst []byte, p problem) []byte {
		o := rawjson.NewObject(dst)
		o.String("type", p.kind)
		o.Raw("loc", appendPath(nil, p.path))
		o.String("msg", p.message)
		o.Raw("input", p.input)
		if p.context != nil {
			o.Raw("ctx", p.context)
		}
		return o.End()
	})
	return append(out, '}')
}

func appendPath(dst []byte, path []any) []byte {
	return rawjson.AppendArray(dst, path, func(dst []byte, step any) []byte {
		switch step := step.(type) {
		case string:
			return rawjson.AppendString(dst, step)
		case int:
			return rawjson.AppendInt(dst, step)
		default:
			return dst
		}
	})
}

// fieldsOf returns the members of an object.
func fieldsOf(object jsontext.Value) map[string]jsontext.Value {
	fields := map[string]jsontext.Value{}
	for name, value := range rawjson.Members(object) {
		fields[rawjson.UnquoteName(name)] = value
	}
	return fields
}

// arrayOf returns the list of JSON values.
func arrayOf(values [][]byte) jsontext.Value {
	return rawjson.AppendArray(nil, values, func(dst, value []byte) []byte { return append(dst, value...) })
}

// document returns a body as JSON. Like Python's reader it accepts a byte order mark, and NaN and infinities, which
// become null. The body must be UTF-8.
func document(body []byte) (jsontext.Value, bool) {
	raw := jsontext.Value(bytes.TrimSpace(bytes.TrimPrefix(body, []byte("\ufeff"))))
	if !utf8.Valid(raw) {
		return raw, false
	}
	if raw.IsValid(rawjson.Options()) {
		return raw, true
	}
	raw = withoutNaN(raw)
	return raw, raw.IsValid(rawjson.Options())
}

// withoutNaN replaces NaN, Infinity and -Infinity outside strings by null.
func withoutNaN(raw []byte) []byte {
	out := make([]byte, 0, len(raw))
	for i := 0; i < len(raw); {
		switch {
		case raw[i] == '"':
			end := rawjson.SkipString(raw, i)
			if end <= i {
				return raw
			}
			out = append(out, raw[i:end]...)
			i = end
			continue
		case bytes.HasPrefix(raw[i:], []byte("NaN")):
			i += len("NaN")
		case bytes.HasPrefix(raw[i:], []byte("Infinity")):
			i += len("Infinity")
		case bytes.HasPrefix(raw[i:], []byte("-Infinity")):
			i += len("-Infinity")
		default:
			out = append(out, raw[i])
			i++
			continue
		}
		out = append(out, "null"...)
	}
	return out
}

// errProblems returns the error for a request with problems, nil if it has none.
func (c *checker) errProblems() error {
	if len(c.problems) == 0 {
		return nil
	}
	return &statusError{status: http.StatusUnprocessableEntity, body: c.detail(), text: "the request is not valid"}
}
