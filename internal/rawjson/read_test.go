package rawjson

import (
	"errors"
	"fmt"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

type refused struct{ at, kind, message, input string }

func (r refused) Error() string {
	return fmt.Sprintf("%s %s %q got %s", r.at, r.kind, r.message, r.input)
}

func newReader(doc string) Reader {
	return Reader{Decoder: NewDecoder([]byte(doc)), Reject: func(at jsontext.Pointer, kind, message string, input jsontext.Value) error {
		return refused{string(at), kind, message, string(input)}
	}}
}

// document has a field of every type that a Reader reads.
type document struct {
	text, nullable string
	list           []string
	flag           bool
	number         int64
	count          int
	float          float64
	choice         string
	choices        []string
	raw, dict, opt jsontext.Value
	free           map[string]int
}

func (d *document) read(r Reader) error {
	return r.Object(func(name []byte) error {
		switch string(name) {
		case "text":
			return r.String(&d.text)
		case "nullable":
			if null, err := r.Null(); null || err != nil {
				return err
			}
			return r.String(&d.nullable)
		case "list":
			return r.Strings(&d.list)
		case "flag":
			return r.Bool(&d.flag)
		case "number":
			return Int(r, &d.number)
		case "count":
			return IntAtLeast(r, &d.count, 1)
		case "float":
			return Float(r, &d.float)
		case "choice":
			return Enum(r, &d.choice, []string{"a", "b", "c"})
		case "choices":
			return Enums(r, &d.choices, []string{"a", "b"})
		case "raw":
			return r.Raw(&d.raw)
		case "dict":
			return r.RawDict(&d.dict)
		case "opt":
			return r.RawDictOrNull(&d.opt)
		case "free":
			d.free = map[string]int{}
			return r.Dict(func(name []byte) error {
				key, value := string(name), 0
				err := Int(r, &value)
				d.free[key] = value
				return err
			})
		default:
			return r.SkipValue()
		}
	}, "text")
}

func TestReader(t *testing.T) {
	t.Parallel()
	var d document
	const doc = ` {"text":"x\u00e9","nullable":null,"list":["p"],"flag":true,"number":"-7.0","count":2.0,"float":" 1e3 ","choice":"b",
		"choices":[],"raw":[1.0, 2],"dict":{"k" :1},"opt":null,"fr\u0065e":{"one":1},"unknown":{"a":[]}}`
	if err := d.read(newReader(doc)); err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%q %q %q %v %d %d %v %q %q %s %s %q %v", d.text, d.nullable, d.list, d.flag, d.number, d.count, d.float, d.choice, d.choices, d.raw, d.dict, []byte(d.opt), d.free)
	if want := `"xé" "" ["p"] true -7 2 1000 "b" [] [1.0, 2] {"k" :1} "" map[one:1]`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if d.choices == nil {
		t.Error("an empty list is nil")
	}
}

func TestReaderRefuses(t *testing.T) {
	t.Parallel()
	const fields = "Input should be a valid dictionary or object to extract fields from"
	for doc, want := range map[string]refused{
		`3`:                              {"", "model_attributes_type", fields, "3"},
		`{}`:                             {"/text", "missing", "Field required", ""},
		`{"text":null}`:                  {"/text", "string_type", "Input should be a valid string", "null"},
		`{"nullable":1}`:                 {"/nullable", "string_type", "Input should be a valid string", "1"},
		`{"list":"x"}`:                   {"/list", "list_type", "Input should be a valid list", `"x"`},
		`{"list":["x",1]}`:               {"/list/1", "string_type", "Input should be a valid string", "1"},
		`{"flag":"yes"}`:                 {"/flag", "bool_type", "Input should be a valid boolean", `"yes"`},
		`{"number":true}`:                {"/number", "int_type", "Input should be a valid integer", "true"},
		`{"number":1.5}`:                 {"/number", "int_from_float", "Input should be a valid integer, got a number with a fractional part", "1.5"},
		`{"number":"1.5"}`:               {"/number", "int_parsing", "Input should be a valid integer, unable to parse string as an integer", `"1.5"`},
		`{"number":1e300}`:               {"/number", "int_parsing_size", "Unable to parse input string as an integer, exceeded maximum size", "1e300"},
		`{"number":9223372036854775808}`: {"/number", "int_parsing_size", "Unable to parse input string as an integer, exceeded maximum size", "9223372036854775808"},
		`{"count":0}`:                    {"/count", "greater_than_equal", "Input should be greater than or equal to 1", "0"},
		`{"float":[]}`:                   {"/float", "float_type", "Input should be a valid number", "[]"},
		`{"float":"x"}`:                  {"/float", "float_parsing", "Input should be a valid number, unable to parse string as a number", `"x"`},
		`{"float":"inf"}`:                {"/float", "finite_number", "Input should be a finite number", `"inf"`},
		`{"float":1e999}`:                {"/float", "finite_number", "Input should be a finite number", "1e999"},
		`{"choice":"d"}`:                 {"/choice", "literal_error", "Input should be 'a', 'b' or 'c'", `"d"`},
		`{"choice":1}`:                   {"/choice", "literal_error", "Input should be 'a', 'b' or 'c'", "1"},
		`{"choices":["a","c"]}`:          {"/choices/1", "literal_error", "Input should be 'a' or 'b'", `"c"`},
		`{"dict":[]}`:                    {"/dict", "dict_type", "Input should be a valid dictionary", "[]"},
		`{"dict":null}`:                  {"/dict", "dict_type", "Input should be a valid dictionary", "null"},
		`{"opt":1}`:                      {"/opt", "dict_type", "Input should be a valid dictionary", "1"},
		`{"free":[]}`:                    {"/free", "dict_type", "Input should be a valid dictionary", "[]"},
		`{"free":{"a":1,"b":"x"}}`:       {"/free/b", "int_parsing", "Input should be a valid integer, unable to parse string as an integer", `"x"`},
	} {
		err := new(document).read(newReader(doc))
		if got, ok := errors.AsType[refused](err); !ok || got != want {
			t.Errorf("%s: got %v, want %v", doc, err, want)
		}
	}
	for _, doc := range []string{``, `{`, `{"text":`, `{"text":"x"`, `{"list":[`, `{"number":`, `{"dict":{`, `{"free":{"a"`, `{"text" "x"}`} {
		err := new(document).read(newReader(doc))
		if _, ok := errors.AsType[refused](err); err == nil || ok {
			t.Errorf("%s: got %v, want an error of syntax", doc, err)
		}
	}
}

func TestUnmarshal(t *testing.T) {
	t.Parallel()
	var got map[string]string
	if err := Unmarshal([]byte(`{"a":"1","a":"2","b":"`+"\xff"+`"}`), &got); err != nil || got["a"] != "2" || got["b"] != "\ufffd" {
		t.Errorf("got %q, %v", got, err)
	}
	var syntax *jsontext.SyntacticError
	if err := Unmarshal([]byte(`{"a"`), &got); !errors.As(err, &syntax) {
		t.Errorf("got %v", err)
	}
}

func TestNumber(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]float64{"0": 0, "-1.5e2": -150, "true": 1, "false": 0} {
		if got, ok := Number(jsontext.Value(raw)); !ok || got != want {
			t.Errorf("%s: got %v, %t, want %v", raw, got, ok, want)
		}
	}
	for _, raw := range []string{"", "null", `"1"`, "1e999", "[1]", "{}", "-", "01"} {
		if got, ok := Number(jsontext.Value(raw)); ok {
			t.Errorf("%q: got %v, want none", raw, got)
		}
	}
}
