package wire

import (
	"bytes"
	"errors"
	"io"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// Decoder reads request bodies, one after another. Its zero value is ready to use. It refers to the last body until
// the next one.
type Decoder struct {
	in  bytes.Buffer
	dec jsontext.Decoder
}

// Decode reads a body, which must be one document.
func (d *Decoder) Decode(body []byte, v json.UnmarshalerFrom) error {
	if !utf8.Valid(body) {
		return ErrBody(body, errUTF8(body))
	}
	return ErrBody(body, d.decode(body, v))
}

// unicodeType is the kind of a field error for what is not UTF-8.
const unicodeType = "string_unicode"

// errUTF8 returns an error for the first string that is not valid UTF-8. Decoding would silently replace its invalid
// bytes.
func errUTF8(body []byte) error {
	dec := jsontext.NewDecoder(bytes.NewReader(body), jsontext.AllowDuplicateNames(true))
	for {
		_, err := dec.ReadToken()
		if bad, ok := errors.AsType[*jsontext.SyntacticError](err); ok && !utf8.Valid(body[:bad.ByteOffset+1]) {
			return &agl.FieldError{Pointer: bad.JSONPointer, Type: unicodeType, Message: "Input should be valid UTF-8"}
		}
		if err != nil {
			return err
		}
	}
}

func (d *Decoder) decode(doc []byte, v json.UnmarshalerFrom) error {
	d.in = *bytes.NewBuffer(doc)
	dec := &d.dec
	dec.Reset(&d.in, rawjson.Options())
	err := v.UnmarshalJSONFrom(dec)
	if err == nil {
		_, err = dec.ReadToken()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err == nil:
			err = &jsontext.SyntacticError{ByteOffset: dec.InputOffset(), Err: errors.New("extra data")}
		}
	} else if errors.Is(err, io.EOF) { // nothing but white space
		err = &jsontext.SyntacticError{ByteOffset: dec.InputOffset(), Err: io.ErrUnexpectedEOF}
	}
	return err
}

// strict reads a body into what a pointer points to, and rejects unknown members. allowed lists the known ones.
func strict(dec *jsontext.Decoder, into any, allowed string) error {
	if err := json.UnmarshalDecode(dec, into, json.RejectUnknownMembers(true)); err != nil {
		return agl.Errorf(agl.CodeInvalid, "body: %w; allowed: %s", rawjson.Mistake(err), allowed)
	}
	return nil
}

// appendValue appends the JSON of a body. What has none, as invalid UTF-8 and NaN have not, is null: no server accepts it.
func appendValue(dst []byte, body any) []byte {
	doc, err := json.Marshal(body)
	if err != nil {
		doc = []byte("null")
	}
	return append(dst, doc...)
}
