package rawjson

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Mistake words an error of decoding for the person who wrote the document: which member is wrong, and what it must be. The
// JSON library names types of Go instead. An error that is not about a member or its type is returned as it is.
func Mistake(err error) error {
	at, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return err
	}
	member := strings.Join(slices.Collect(at.JSONPointer.Tokens()), ".")
	if errors.Is(at.Err, json.ErrUnknownName) {
		return fmt.Errorf("unknown member %.100q", member)
	}
	var mistake error
	switch got, want := KindName(at.JSONKind), TypeName(at.GoType); {
	case at.JSONKind == '0' && errors.Is(at.Err, strconv.ErrSyntax):
		mistake = fmt.Errorf("got %.50s, must be a whole number", at.JSONValue)
	case at.JSONKind == '0' && errors.Is(at.Err, strconv.ErrRange):
		mistake = fmt.Errorf("got %.50s, is out of range", at.JSONValue)
	case at.Err != nil && member != "":
		mistake = at.Err
	case at.Err != nil || got == "" || want == "" || got == want:
		return err
	default:
		mistake = fmt.Errorf("got %s, must be %s", got, want)
	}
	if member == "" {
		return mistake
	}
	return fmt.Errorf("%.100s: %w", member, mistake)
}

// KindName names a kind of JSON; "" if there is none.
func KindName(kind jsontext.Kind) string {
	switch kind {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "a list"
	}
	return ""
}

// TypeName names the kind of JSON that a Go value is read from; "" if that is not known.
func TypeName(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return ""
	}
	switch t.Kind() {
	case reflect.Bool:
		return "a boolean"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64, reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64, reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Slice, reflect.Array:
		return "a list"
	}
	return ""
}
