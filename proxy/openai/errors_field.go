package openai

import (
	"cmp"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// FieldError says which field of a request cannot be translated for a backend of
// another API, and why.
type FieldError struct {
	Field  string // such as tools[1].type
	Reason string
}

func (e *FieldError) Error() string { return e.Field + ": " + e.Reason }

// Unsupported returns a [FieldError].
func Unsupported(field, format string, args ...any) error {
	return &FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// BackendError is the error of a reply that is an error in spite of its status. It says what the backend says.
func BackendError(said jsontext.Value) error {
	message := ErrorMessage(said)
	if message == "" {
		message = string(said)
	}
	return &FieldError{Field: "error", Reason: message}
}

// DecodeError turns the error of a JSON decoder into a [FieldError], with the field as
// the API names it.
func DecodeError(err error) error {
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return &FieldError{Field: "body", Reason: err.Error()}
	}
	var field strings.Builder
	for token := range semantic.JSONPointer.Tokens() {
		switch {
		case token != "" && token[0] >= '0' && token[0] <= '9':
			field.WriteString("[" + token + "]")
		case field.Len() > 0:
			field.WriteString("." + token)
		default:
			field.WriteString(token)
		}
	}
	got, want := rawjson.KindName(semantic.JSONKind), rawjson.TypeName(semantic.GoType)
	return &FieldError{Field: cmp.Or(field.String(), "body"), Reason: "got " + cmp.Or(got, "another type") + ", must be " + cmp.Or(want, "another type")}
}

// DecodeList decodes the list of objects in a field. The [FieldError] says what the field may be, or names the member of an object that
// is wrong.
func DecodeList(list jsontext.Value, into any, field, allowed string) error {
	err := rawjson.Unmarshal(list, into)
	if err == nil {
		return nil
	}
	if len(list) == 0 {
		return Unsupported(field, "is missing, must be %s", allowed)
	}
	wrong, ok := errors.AsType[*FieldError](DecodeError(err))
	if !ok || list.Kind() != '[' || !strings.HasPrefix(wrong.Field, "[") {
		return Unsupported(field, "got %.100s, must be %s", list, allowed)
	}
	return &FieldError{Field: field + wrong.Field, Reason: wrong.Reason}
}
