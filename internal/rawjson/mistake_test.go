package rawjson_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// part reads a string with the decoder that it is given.
type part string

func (p *part) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	err := json.UnmarshalDecode(dec, (*string)(p))
	if err == nil && strings.HasSuffix(string(*p), "!") {
		err = errors.New("no mark is allowed")
	}
	return err
}

func TestMistake(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`[1]`:                      "got a list, must be an object",
		`{"usre":"ada"}`:           `unknown member "usre"`,
		`{"limits":{"calls":1}}`:   `unknown member "limits.calls"`,
		`{"user":7}`:               "user: got a number, must be a string",
		`{"wait":"long"}`:          "wait: got a string, must be a number",
		`{"scopes":{}}`:            "scopes: got an object, must be a list",
		`{"scopes":["read",true]}`: "scopes.1: got a boolean, must be a string",
		`{"limits":{"rate":1.5}}`:  "limits.rate: got 1.5, must be a whole number",
		`{"limits":{"rate":1e30}}`: "limits.rate: got 1e30, must be a whole number",
		`{"limits":{"rate":99999999999999999999}}`: "limits.rate: got 99999999999999999999, is out of range",
		`{"parts":["a","b!"]}`:                     "parts.1: no mark is allowed",
	} {
		var into struct {
			User   string   `json:"user"`
			Wait   *float64 `json:"wait"`
			Scopes []string `json:"scopes"`
			Limits struct {
				Rate int `json:"rate"`
			} `json:"limits"`
			Parts []part `json:"parts"`
		}
		if err := rawjson.Mistake(json.Unmarshal([]byte(body), &into, json.RejectUnknownMembers(true))); err == nil || err.Error() != want {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
	if err := rawjson.Mistake(nil); err != nil {
		t.Errorf("of no error: %v", err)
	}
	var into struct{}
	err := json.Unmarshal([]byte(`{`), &into)
	if got := rawjson.Mistake(err); !errors.Is(got, err) {
		t.Errorf("of half a document: got %v, want %v", got, err)
	}
	if _, ok := errors.AsType[*jsontext.SyntacticError](rawjson.Mistake(err)); !ok {
		t.Errorf("of half a document: got %T, want a syntactic error", err)
	}
}
