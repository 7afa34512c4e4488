package rest

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// unmarshaler is implemented by request envelopes and by the nouns.
type unmarshaler interface {
	UnmarshalJSONFrom(dec *jsontext.Decoder) error
}

// read reads typed values. What it refuses is an agl.FieldError, as in the nouns.
func read(dec *jsontext.Decoder) rawjson.Reader {
	return rawjson.Reader{Decoder: dec, Reject: func(at jsontext.Pointer, kind, message string, input jsontext.Value) error {
		return &agl.FieldError{Pointer: at, Type: kind, Message: message, Input: input}
	}}
}

// decodeDocument reads exactly one document out of dec.
func decodeDocument(dec *jsontext.Decoder, v unmarshaler) error {
	err := v.UnmarshalJSONFrom(dec)
	if errors.Is(err, io.EOF) { // nothing but white space
		return &jsontext.SyntacticError{ByteOffset: dec.InputOffset(), Err: io.ErrUnexpectedEOF}
	}
	if err != nil {
		return err
	}
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		if err == nil {
			err = &jsontext.SyntacticError{ByteOffset: dec.InputOffset(), Err: errors.New("extra data")}
		}
		return err
	}
	return nil
}

// readSeconds reads a duration in seconds, which must not exceed limit unless that
// is 0. A negative one counts as 0, one that Go cannot hold as the longest.
func readSeconds(dec *jsontext.Decoder, d *time.Duration, limit float64) error {
	var f float64
	if err := rawjson.Float(read(dec), &f); err != nil {
		return err
	}
	if limit > 0 && f > limit {
		return &agl.FieldError{
			Pointer: dec.StackPointer(), Type: "less_than_equal",
			Message: fmt.Sprintf("Input should be less than or equal to %g", limit), Input: strconv.AppendFloat(nil, f, 'g', -1, 64),
		}
	}
	*d = secondsDuration(f)
	return nil
}

func secondsDuration(seconds float64) time.Duration {
	return time.Duration(min(max(seconds, 0), math.MaxInt64/2/float64(time.Second)) * float64(time.Second))
}

// readEnums reads the values of a filter: null is no filter, [] one that nothing
// matches.
func readEnums[S ~string](dec *jsontext.Decoder, list *[]S, allowed []S) error {
	*list = nil
	in := read(dec)
	if null, err := in.Null(); null || err != nil {
		return err
	}
	return rawjson.Enums(in, list, allowed)
}

// readTwice reads one object as v and then its members once more with field, for
// an envelope that is a noun with another key or two.
func readTwice(dec *jsontext.Decoder, v unmarshaler, field func(in rawjson.Reader, name []byte) error) error {
	if dec.PeekKind() != '{' {
		return read(dec).Object(nil)
	}
	raw, err := dec.ReadValue()
	if err != nil {
		return err
	}
	if err := v.UnmarshalJSONFrom(rawjson.NewDecoder(raw)); err != nil {
		return err
	}
	in := read(rawjson.NewDecoder(raw))
	return in.Object(func(name []byte) error { return field(in, name) })
}
