package rest

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

// statusClientGone is what logs and metrics say of a request whose client left
// before the answer; nobody receives it.
const statusClientGone = 499

// httpError is an answer that is fully decided: a status and its document.
type httpError struct {
	status int
	body   []byte
}

func (e *httpError) Error() string { return strconv.Itoa(e.status) + " " + string(e.body) }

// detailError makes an answer of the form {"detail":"message"}.
func detailError(status int, message string) error {
	b := append([]byte(`{"detail":`), quote(message)...)
	return &httpError{status: status, body: append(b, '}')}
}

func quote(s string) []byte { return rawjson.AppendString(nil, s) }

// errNullField answers an explicit null for a field that can be left out only.
func errNullField(name string) error {
	return detailError(http.StatusBadRequest, name+" is invalid; it cannot be a null value.")
}

// storeStatus maps the code of a store's error to a status and to the name that
// Python clients know such an error by.
func storeStatus(code agl.Code) (status int, errorType string) {
	switch code {
	case agl.CodeInvalid, agl.CodeNotFound, agl.CodeIllegalState:
		return http.StatusBadRequest, "ValueError"
	case agl.CodeEvicted:
		return http.StatusBadRequest, "RuntimeError"
	case agl.CodeConflict:
		return http.StatusUnprocessableEntity, "ValueError"
	case agl.CodeExhausted:
		return http.StatusInsufficientStorage, "MemoryError"
	case agl.CodeUnavailable:
		return http.StatusServiceUnavailable, "ConnectionError"
	case agl.CodeUnauthorized:
		return http.StatusUnauthorized, "PermissionError"
	case agl.CodeUnimplemented:
		return http.StatusNotImplemented, "NotImplementedError"
	case agl.CodeInternal:
	}
	return http.StatusInternalServerError, "InternalError"
}

// appendProblem appends the document of a store's error: what the reference's
// documents say, and the code, from which our client restores the error.
func appendProblem(dst []byte, err error) []byte {
	code := agl.ErrorCode(err)
	_, errorType := storeStatus(code)
	dst = append(dst, `{"detail":`...)
	dst = rawjson.AppendString(dst, err.Error())
	dst = append(dst, `,"error_type":`...)
	dst = rawjson.AppendString(dst, errorType)
	dst = append(dst, `,"code":`...)
	dst = rawjson.AppendString(dst, string(code))
	return append(dst, '}')
}

// validation is one entry of a 422 answer, in the form of pydantic.
type validation struct {
	kind    string
	loc     []byte // a JSON array
	message string
	input   []byte // a JSON value
	context []byte // a JSON object, or nil
}

func (v validation) appendJSON(dst []byte) []byte {
	dst = append(dst, `{"detail":[{"type":`...)
	dst = rawjson.AppendString(dst, v.kind)
	dst = append(dst, `,"loc":`...)
	dst = append(dst, v.loc...)
	dst = append(dst, `,"msg":`...)
	dst = rawjson.AppendString(dst, v.message)
	dst = append(dst, `,"input":`...)
	dst = append(dst, v.input...)
	if v.context != nil {
		dst = append(dst, `,"ctx":`...)
		dst = append(dst, v.context...)
	}
	return append(dst, `}]}`...)
}

func (v validation) err() error {
	return &httpError{status: http.StatusUnprocessableEntity, body: v.appendJSON(nil)}
}

// queryError rejects a parameter of the query string.
func queryError(name string, index int, kind, message, input string) error {
	loc := append([]byte(`["query",`), quote(name)...)
	if index >= 0 {
		loc = strconv.AppendInt(append(loc, ','), int64(index), 10)
	}
	return validation{kind, append(loc, ']'), message, quote(input), expectation(kind, message)}.err()
}

// expectation repeats what an enumeration allows, as the reference does.
func expectation(kind, message string) []byte {
	expected, ok := strings.CutPrefix(message, "Input should be ")
	if !ok || kind != "literal_error" {
		return nil
	}
	return append(append([]byte(`{"expected":`), quote(expected)...), '}')
}

// bodyMissing answers a request without the body that it needs.
func bodyMissing() error {
	return validation{"missing", []byte(`["body"]`), "Field required", []byte("null"), nil}.err()
}

// bodyError words what is wrong with a body that could not be decoded; an error
// of another kind is returned as it is.
func bodyError(body []byte, err error) error {
	if field, ok := errors.AsType[*agl.FieldError](err); ok {
		loc, parent, value := locate(body, field.Pointer)
		input := []byte(field.Input)
		switch {
		case input != nil:
		case field.Type == "missing":
			input = parent
		default:
			input = value
		}
		return validation{field.Type, loc, field.Message, input, expectation(field.Type, field.Message)}.err()
	}
	var syntax *jsontext.SyntacticError
	if !errors.As(err, &syntax) {
		return err
	}
	at := min(max(syntax.ByteOffset, 0), int64(len(body)))
	if literal := nonFiniteAt(body, int(at)); literal != "" {
		loc, _, _ := locate(body, syntax.JSONPointer)
		return validation{"finite_number", loc, rawjson.NotFinite, quote(literal), nil}.err()
	}
	loc := append(strconv.AppendInt([]byte(`["body",`), at, 10), ']')
	reason := syntax.Error()
	if syntax.Err != nil {
		reason = syntax.Err.Error()
	}
	context := append(append([]byte(`{"error":`), quote(reason)...), '}')
	return validation{"json_invalid", loc, "JSON decode error", []byte("{}"), context}.err()
}

// nonFiniteAt returns the literal NaN, Infinity or -Infinity, which Python
// writes and JSON does not know, if it is what the decoder stumbled over at
// offset at.
func nonFiniteAt(body []byte, at int) string {
	rest := body[at:]
	if at > 0 && body[at-1] == '-' {
		rest = body[at-1:]
	}
	for _, literal := range [...]string{"NaN", "Infinity", "-Infinity"} {
		if bytes.HasPrefix(rest, []byte(literal)) {
			return literal
		}
	}
	return ""
}

// locate turns a pointer into body to a loc of the reference, in which array
// indices are numbers. It returns also the value that the pointer names and the
// innermost object or array that holds it, each null where there is none.
func locate(body []byte, pointer jsontext.Pointer) (loc, parent, value []byte) {
	loc = []byte(`["body"`)
	current, holder := jsontext.Value(body), jsontext.Value(nil)
	for token := range pointer.Tokens() {
		loc = append(loc, ',')
		switch containerKind(current) {
		case '[':
			loc = append(loc, token...)
			holder = current
		case '{':
			loc = rawjson.AppendString(loc, token)
			holder = current
		default:
			loc = rawjson.AppendString(loc, token)
		}
		current = childOf(current, token)
	}
	return append(loc, ']'), validOrNull(holder), validOrNull(current)
}

func validOrNull(v jsontext.Value) []byte {
	if !v.IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
		return []byte("null")
	}
	return bytes.TrimSpace(v)
}

func containerKind(v jsontext.Value) byte {
	if k := v.Kind(); k == '{' || k == '[' {
		return byte(k)
	}
	return 0
}

// childOf returns the member or element of v that token names, as far as v can
// be read; the last one, if a name is repeated.
func childOf(v jsontext.Value, token string) jsontext.Value {
	dec := rawjson.NewDecoder(v)
	open, err := dec.ReadToken()
	if err != nil {
		return nil
	}
	object := open.Kind() == '{'
	var found jsontext.Value
	for i := 0; dec.PeekKind() != ']' && dec.PeekKind() != '}'; i++ {
		name := strconv.Itoa(i)
		if object {
			tok, err := dec.ReadToken()
			if err != nil {
				return found
			}
			name = tok.String()
		}
		start := dec.InputOffset()
		value, err := dec.ReadValue()
		switch {
		case err != nil && name == token:
			// The fault lies inside this value: go on with what is there of it.
			return bytes.TrimLeft(v[start:], " \t\r\n:,")
		case err != nil:
			return found
		case name == token:
			found = value.Clone()
		}
	}
	return found
}

// wireError restores the error of a failed answer: the store's own, where it
// is one.
func wireError(op string, status int, body []byte) error {
	var doc struct {
		Detail jsontext.Value `json:"detail"`
		Code   agl.Code       `json:"code"`
		Type   string         `json:"error_type"`
		ID     string         `json:"request_id"`
	}
	var message string
	switch err := rawjson.Unmarshal(body, &doc); {
	case err == nil && doc.Detail.Kind() == '"':
		message = rawjson.Unquote(doc.Detail)
	case err == nil && doc.Detail.Kind() == '[':
		message = validationMessage(doc.Detail)
	}
	code := doc.Code
	if code == "" {
		code = codeOfStatus(status, doc.Type)
	}
	if message != "" && status < http.StatusInternalServerError {
		return agl.Errorf(code, "%s", message)
	}
	if message == "" {
		message = strings.TrimSpace(string(body))
	}
	const most = 500
	if len(message) > most {
		message = message[:most] + "…"
	}
	if doc.ID != "" {
		message += " (its log has more under request_id " + doc.ID + ")"
	}
	return agl.Errorf(code, "%s: the store's server answered %d %s: %s", op, status, http.StatusText(status), message)
}

// validationMessage puts the entries of a 422 answer into words.
func validationMessage(detail jsontext.Value) string {
	var entries []struct {
		Loc   []any          `json:"loc"`
		Msg   string         `json:"msg"`
		Type  string         `json:"type"`
		Input jsontext.Value `json:"input"`
	}
	if rawjson.Unmarshal(detail, &entries) != nil {
		return string(detail)
	}
	var b strings.Builder
	for i, e := range entries {
		if i > 0 {
			b.WriteString("; ")
		}
		if e.Type == "idempotency_conflict" {
			b.WriteString(e.Msg)
			continue
		}
		for j, at := range e.Loc {
			if j > 0 {
				b.WriteByte('.')
			}
			fmt.Fprint(&b, at)
		}
		fmt.Fprintf(&b, ": %s", e.Msg)
		if e.Type != "missing" && len(e.Input) <= 200 {
			fmt.Fprintf(&b, ", got %s", e.Input)
		}
	}
	return b.String()
}

// codeOfStatus guesses the code of an answer that carries none, such as one of
// a Python server or of a proxy on the way.
func codeOfStatus(status int, errorType string) agl.Code {
	switch {
	case errorType == "RuntimeError":
		return agl.CodeEvicted
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return agl.CodeUnauthorized
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented:
		return agl.CodeUnimplemented
	case status == http.StatusInsufficientStorage:
		return agl.CodeExhausted
	case retryable(status):
		return agl.CodeUnavailable
	case status >= http.StatusInternalServerError:
		return agl.CodeInternal
	default:
		return agl.CodeInvalid
	}
}

// retryable reports whether the same request may succeed a moment later.
func retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}
