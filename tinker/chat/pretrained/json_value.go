package pretrained

import (
	"errors"
	"math/big"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/jinja"
)

// parseValue reads JSON into a value for templates as Python does: integers are no floats, and objects keep their order.
func parseValue(data jsontext.Value) (v any, err error) {
	err = json.Unmarshal(data, &v, json.WithUnmarshalers(json.UnmarshalFromFunc(readValue)))
	return v, err
}

func readValue(dec *jsontext.Decoder, to *any) error {
	switch dec.PeekKind() {
	case '0':
		tok, err := dec.ReadToken()
		if err != nil {
			return err
		}
		*to, err = number(tok.String())
		return err
	case '{':
		_, err := dec.ReadToken()
		dict := new(jinja.Dict)
		for err == nil && dec.PeekKind() != '}' {
			var key string
			var v any
			err = errors.Join(json.UnmarshalDecode(dec, &key), json.UnmarshalDecode(dec, &v))
			dict.Set(key, v)
		}
		if err == nil {
			_, err = dec.ReadToken()
		}
		*to = dict
		return err
	}
	return errors.ErrUnsupported // the default is as in Python
}

func number(text string) (any, error) {
	if n, ok := new(big.Int).SetString(text, 10); ok {
		return n, nil
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil && f == 0 {
		return nil, err
	}
	return f, nil // infinity if it is too large
}
