package wire

import (
	"bytes"
	"errors"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// Decoder reads request bodies one after the other. Its zero value is ready. It keeps a
// reference to the last body until the next one.
type Decoder struct {
	in  bytes.Buffer
	dec jsontext.Decoder
}

// Decode reads a body, which must be one document.
func (d *Decoder) Decode(body []byte, v json.UnmarshalerFrom) error {
	return ErrBody(body, d.decode(body, v))
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
