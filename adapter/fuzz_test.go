package adapter

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

func FuzzLiteral(f *testing.F) {
	data, err := os.ReadFile("testdata/literals.json")
	if err != nil {
		f.Fatal(err)
	}
	var cases []struct {
		Text string `json:"text"`
	}
	if err := json.Unmarshal(data, &cases); err != nil {
		f.Fatal(err)
	}
	for _, c := range cases {
		f.Add(c.Text)
	}
	for _, list := range []string{"[7, -1,2147483647]", "[ ]", "[true,1]", "[01]", "[-00]", "[1]2", "[1]\x00", "[1,]", "[[1]]", "[2147483648]"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, text string) {
		value, err := readLiteral(text)
		// Token ids that are read without reading a literal first are the same.
		if ids, ok := tokenIDs(jsontext.Value(text)); ok {
			if literal, ok := tokenIDs(value); err != nil || !ok || !slices.Equal(ids, literal) {
				t.Fatalf("%q: token ids are %v at once, and %v, %v as a literal", text, ids, literal, err)
			}
		}
		if err != nil {
			if agl.ErrorCode(err) != agl.CodeInvalid {
				t.Fatalf("%q: code of %v", text, err)
			}
			return
		}
		if !value.IsValid(jsontext.AllowDuplicateNames(true)) {
			t.Fatalf("%q became %s, which is no JSON", text, value)
		}
		again, err := readLiteral(string(value))
		if err != nil || string(again) != string(value) {
			t.Fatalf("%q became %s, and that %s, %v", text, value, again, err)
		}
	})
}

// FuzzAdapt feeds every adapter with a span and its child. Nothing may panic,
// every error must be of code CodeInvalid, and every answer must have a JSON
// form.
func FuzzAdapt(f *testing.F) {
	files, err := filepath.Glob("testdata/golden/*.json")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		var golden goldenCase
		if err := json.Unmarshal(data, &golden, json.MatchCaseInsensitiveNames(true)); err != nil {
			f.Fatal(err)
		}
		for i := 0; i+1 < len(golden.Spans); i += 5 {
			a, b := &golden.Spans[i], &golden.Spans[i+1]
			f.Add(a.Name, []byte(a.Attributes), b.Name, []byte(b.Attributes))
		}
	}
	f.Fuzz(func(t *testing.T, name string, attributes []byte, childName string, childAttributes []byte) {
		spans := []agl.Span{
			{SpanID: "a", Name: name, StartTime: at(1), EndTime: at(2), SequenceID: 1},
			{SpanID: "b", Name: childName, StartTime: at(3), ParentID: agl.Some("a"), SequenceID: 2},
		}
		if rawjson.Unmarshal(attributes, &spans[0].Attributes) != nil || rawjson.Unmarshal(childAttributes, &spans[1].Attributes) != nil {
			return
		}
		check := func(answer any, err error) {
			if err == nil {
				_, err := json.Marshal(answer, rawjson.Options())
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if agl.ErrorCode(err) != agl.CodeInvalid {
				t.Fatalf("code of %v", err)
			}
		}
		check(adapt(TracerTriplets{}, spans))
		check(adapt(TracerTriplets{RewardMatch: FirstSibling, IncludeRewardCalls: true}, spans))
		check(adapt(ProxyTriplets{}, spans))
		check(adapt(Messages{}, spans))
		check(adapt(Trajectories{}, spans))
	})
}

func adapt[T any](adapter agl.Adapter[T], spans []agl.Span) (any, error) { return adapter.Adapt(spans) }
