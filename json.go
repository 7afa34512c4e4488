package agl

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// reader reads wire forms. A value that it refuses is a [FieldError].
func reader(dec *jsontext.Decoder) rawjson.Reader {
	return rawjson.Reader{Decoder: dec, Reject: rejectField}
}

func rejectField(at jsontext.Pointer, kind, message string, input jsontext.Value) error {
	return &FieldError{Pointer: at, Type: kind, Message: message, Input: input}
}

// nullable is [Object.NullString] and [Object.NullFloat] of a builder for a Null.
func nullString(o *rawjson.Object, name string, s Null[string]) { o.NullString(name, s.V, s.Valid) }

func nullTime(o *rawjson.Object, name string, t Null[Timestamp]) {
	o.NullFloat(name, float64(t.V), t.Valid)
}
