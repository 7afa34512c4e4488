package record

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestAppendPython(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`{"a":[true,false,null],"b":-1.5e3}`: `{"a": [True, False, None], "b": -1.5e3}`,
		"[ 1,\n\t2 ]":                        `[1, 2]`,
		`"true null"`:                        `"true null"`,
		`"a\/b\\/\"\n\u00e9"`:                `"a/b\\/\"\n\u00e9"`,
		`"\ud83d\ude00 \ud83d \ude00\ud83d"`: `"😀 \ud83d \ude00\ud83d"`,
		`"\\ud83d\\ude00"`:                   `"\\ud83d\\ude00"`,
		`["it's","",{}]`:                     `["it's", "", {}]`,
	} {
		got, err := jsontext.AppendUnquote(nil, appendPython(nil, []byte(in)))
		if err != nil || string(got) != want {
			t.Errorf("%s: got %s, want %s (%v)", in, got, want, err)
		}
	}
}

// FuzzQuoted: any JSON value survives being the text of a string, and as a
// Python literal it is a string still.
func FuzzQuoted(f *testing.F) {
	for _, seed := range []string{`{"a":"\\\"\/\ud83d\ude00"}`, "[ 1,\r\n\t\"\\u0000\" ]", `""`, `"\\"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, value []byte) {
		if !jsontext.Value(value).IsValid(jsontext.AllowDuplicateNames(true)) {
			return
		}
		got, err := jsontext.AppendUnquote(nil, appendQuoted(nil, value))
		if err != nil || string(got) != string(value) {
			t.Errorf("got %q, want %q (%v)", got, value, err)
		}
		if quoted := jsontext.Value(appendPython(nil, value)); !quoted.IsValid() {
			t.Errorf("%q became %q", value, quoted)
		}
	})
}
