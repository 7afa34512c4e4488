package wire

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// StatusError is an error with the exact answer that the protocol prescribes.
type StatusError struct {
	Status int
	Body   []byte // a JSON document
}

func (e *StatusError) Error() string {
	return http.StatusText(e.Status) + ": " + string(e.Body)
}

// ErrDetail returns an answer of the form {"detail":"message"}.
func ErrDetail(status int, message string) error {
	o := rawjson.NewObject(nil)
	o.String("detail", message)
	return &StatusError{status, o.End()}
}

// invalid is the single entry in the list of a 422 answer, in pydantic's form, which Python clients know.
type invalid struct {
	kind    string
	loc     []byte // a JSON array: body or query, and the path to the value
	message string
	input   []byte // a JSON value
	context []byte // a JSON object, or nil
}

func (v invalid) err() error {
	return &StatusError{http.StatusUnprocessableEntity, v.appendJSON(nil, "")}
}

// appendJSON appends the document of the answer. An empty code is left out.
func (v invalid) appendJSON(dst []byte, code agl.Code) []byte {
	o := rawjson.NewObject(dst)
	o.Key("detail")
	entry := rawjson.NewObject(append(o, '['))
	entry.String("type", v.kind)
	entry.Raw("loc", v.loc)
	entry.String("msg", v.message)
	entry.Raw("input", v.input)
	if v.context != nil {
		entry.Raw("ctx", v.context)
	}
	o = append(entry.End(), ']')
	o.NonEmpty("code", string(code))
	return o.End()
}

// ErrNoBody rejects a request without a required body.
func ErrNoBody() error {
	return invalid{kind: "missing", loc: []byte(`["body"]`), message: "Field required"}.err()
}

// ErrNotJSON rejects a body with a content type other than JSON, such as that of curl -d.
func ErrNotJSON(body []byte) error {
	const message = "Input should be a valid dictionary or object to extract fields from: send it with the header Content-Type: application/json"
	return invalid{kind: "model_attributes_type", loc: []byte(`["body"]`), message: message, input: quote(string(body))}.err()
}

// ErrKeyConflict rejects an idempotency key that was used for another request.
func ErrKeyConflict(key string, err error) error {
	v := invalid{kind: "idempotency_conflict", loc: []byte(`["header","` + IdempotencyKey + `"]`), message: err.Error(), input: quote(key)}
	return &StatusError{http.StatusUnprocessableEntity, v.appendJSON(nil, agl.CodeConflict)}
}

// ErrBody turns an error of decoding a body into the answer that rejects the body. It returns nil, and errors that do
// not concern the body, unchanged.
func ErrBody(body []byte, err error) error {
	if field, ok := errors.AsType[*agl.FieldError](err); ok {
		return fieldInvalid("body", body, field).err()
	}
	syntax, ok := errors.AsType[*jsontext.SyntacticError](err)
	if !ok {
		return err
	}
	at := int(min(max(syntax.ByteOffset, 0), int64(len(body))))
	if literal := nonFinite(body, at); literal != "" {
		loc, _, _ := locate("body", body, syntax.JSONPointer)
		return invalid{kind: "finite_number", loc: loc, message: rawjson.NotFinite, input: quote(literal)}.err()
	}
	reason := syntax.Error()
	if syntax.Err != nil {
		reason = syntax.Err.Error()
	}
	context := rawjson.NewObject(nil)
	context.String("error", reason)
	loc := fmt.Appendf(nil, `["body",%d]`, at)
	return invalid{kind: "json_invalid", loc: loc, message: "JSON decode error", input: []byte("{}"), context: context.End()}.err()
}

// errQuery is ErrBody for a query string that was read as doc.
func errQuery(doc []byte, err error) error {
	if field, ok := errors.AsType[*agl.FieldError](err); ok {
		v := fieldInvalid("query", doc, field)
		if field.Type == "missing" {
			v.input = nil
		}
		return v.err()
	}
	return err
}

// fieldInvalid describes a field error in the part of the request named where. If a member is missing, the input is
// the object that lacks it.
func fieldInvalid(where string, doc []byte, field *agl.FieldError) invalid {
	loc, parent, value := locate(where, doc, field.Pointer)
	v := invalid{kind: field.Type, loc: loc, message: field.Message, input: field.Input}
	switch {
	case v.input != nil:
	case field.Type == "missing":
		v.input = parent
	default:
		v.input = value
	}
	if field.Type == unicodeType && v.input != nil {
		if v.input = bytes.ToValidUTF8(v.input, []byte("\uFFFD")); !jsontext.Value(v.input).IsValid(rawjson.Options()) {
			v.input = quote(string(v.input)) // the invalid bytes were outside of strings
		}
	}
	if allowed, ok := strings.CutPrefix(field.Message, "Input should be "); ok && field.Type == "literal_error" {
		context := rawjson.NewObject(nil)
		context.String("expected", allowed)
		v.context = context.End()
	}
	return v
}

// nonFinite returns the literal NaN, Infinity or -Infinity, which Python writes but JSON lacks, if the decoder
// stopped at one; otherwise "".
func nonFinite(body []byte, at int) string {
	if at > 0 && body[at-1] == '-' {
		at--
	}
	for _, literal := range [...]string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(body[at:], []byte(literal)) {
			return literal
		}
	}
	return ""
}

// locate returns a pointer as a loc, in which array indices are numbers, with the value that it names and the object
// or array around that value. Both are nil if doc does not have them.
func locate(where string, doc []byte, pointer jsontext.Pointer) (loc, parent, value []byte) {
	loc = append([]byte(`[`), quote(where)...)
	start := rawjson.SkipSpace(doc, 0)
	if end := rawjson.SkipValue(doc, start); end >= 0 { // the error may be before a missing end
		value = doc[start:end]
	}
	for token := range pointer.Tokens() {
		loc = append(loc, ',')
		parent, value = value, nil
		if i, err := strconv.Atoi(token); err == nil && len(parent) > 0 && parent[0] == '[' {
			loc = strconv.AppendInt(loc, int64(i), 10)
			for element := range rawjson.Elements(parent) {
				if i--; i < 0 {
					value = element
					break
				}
			}
			continue
		}
		loc = rawjson.AppendString(loc, token)
		value, _ = rawjson.Get(parent, token)
	}
	return append(loc, ']'), parent, value
}

func quote(s string) []byte { return rawjson.AppendString(nil, s) }
