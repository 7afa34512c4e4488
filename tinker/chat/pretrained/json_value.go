package pretrained

import (
	"bytes"
	"fmt"
	"math/big"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/jinja"
)

// parseValue reads JSON into a value for templates as Python does: integers are no floats, and objects keep their order.
func parseValue(data jsontext.Value) (any, error) {
	dec := jsontext.NewDecoder(bytes.NewReader(data))
	v, err := readValue(dec)
	if err != nil {
		return nil, err
	}
	if rest := bytes.TrimSpace(data[dec.InputOffset():]); len(rest) > 0 {
		return nil, fmt.Errorf("there is more after the JSON value")
	}
	return v, nil
}

func readValue(dec *jsontext.Decoder) (any, error) {
	tok, err := dec.ReadToken()
	if err != nil {
		return nil, err
	}
	switch tok.Kind() {
	case 'n':
		return nil, nil
	case 't', 'f':
		return tok.Bool(), nil
	case '"':
		return tok.String(), nil
	case '0':
		text := tok.String()
		if n, ok := new(big.Int).SetString(text, 10); ok {
			return n, nil
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil && f == 0 {
			return nil, err
		}
		return f, nil
	case '[':
		list := []any{}
		for dec.PeekKind() != ']' {
			v, err := readValue(dec)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := dec.ReadToken()
		return list, err
	}
	dict := new(jinja.Dict)
	for dec.PeekKind() != '}' {
		name, err := dec.ReadToken()
		if err != nil {
			return nil, err
		}
		key := name.String()
		v, err := readValue(dec)
		if err != nil {
			return nil, err
		}
		dict.Set(key, v)
	}
	_, err = dec.ReadToken()
	return dict, err
}
