package wire_test

import (
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/rest/internal/wire"
)

// TestSpansInShort: values come back as they were sent, also where one goes on within a character of another.
func TestSpansInShort(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var sent wire.SpansInShort
		var want []string
		for i := range rapid.IntRange(0, 8).Draw(rt, "values") {
			sent.Spans = append(sent.Spans, agl.Span{SpanID: strings.Repeat("s", i+1), Attributes: agl.Attributes(`{"a":1}`)})
			value := agl.SpanValue{Span: i, Name: "prompt", Base: rapid.IntRange(-1, i-1).Draw(rt, "base")}
			whole := string(rawjson.AppendString(nil, rapid.StringOf(rapid.RuneFrom([]rune(`ab"\é語`))).Draw(rt, "text")))
			if value.Base >= 0 {
				base := want[value.Base]
				value.Shared = rapid.IntRange(0, len(base)).Draw(rt, "shared")
				whole = base[:value.Shared] + whole
			}
			value.Rest = []byte(whole[value.Shared:])
			sent.Values, want = append(sent.Values, value), append(want, whole)
		}
		var got wire.SpansInShort
		if err := rawjson.Unmarshal(sent.AppendJSON(nil), &got); err != nil {
			rt.Fatal(err)
		}
		if len(got.Spans) != len(want) || len(got.Values) != len(want) {
			rt.Fatalf("got %d spans and %d values, want %d", len(got.Spans), len(got.Values), len(want))
		}
		for i := range want {
			if value := string(got.AppendValue(nil, i)); got.Values[i].Span != i || got.Values[i].Name != "prompt" || value != want[i] {
				rt.Errorf("value %d is %q of span %d, want %q", i, value, got.Values[i].Span, want[i])
			}
		}
	})
}

func TestSpansInShortFromOthers(t *testing.T) {
	t.Parallel()
	span := agl.Span{SpanID: "s"}
	for _, values := range []string{
		`{"span":1,"name":"a","base":-1,"shared":0,"rest":"1"}`,
		`{"span":-1,"name":"a","base":-1,"shared":0,"rest":"1"}`,
		`{"span":0,"name":"a","base":0,"shared":0,"rest":"1"}`,
		`{"span":0,"name":"a","base":-2,"shared":0,"rest":"1"}`,
		`{"span":0,"name":"a","base":-1,"shared":1,"rest":"1"}`,
		`{"span":0,"name":"a","base":-1,"shared":0,"rest":"1"},{"span":0,"name":"b","base":0,"shared":2,"rest":""}`,
		`{"span":0,"name":"a","base":-1,"shared":0,"rest":"1"},{"span":0,"name":"b","base":0,"shared":-1,"rest":""}`,
	} {
		var got wire.SpansInShort
		err := rawjson.Unmarshal([]byte(`{"items":[`+string(span.AppendJSON(nil))+`],"values":[`+values+`]}`), &got)
		if err == nil || !strings.Contains(err.Error(), "which do not exist") {
			t.Errorf("%s: %v, want an error", values, err)
		}
	}
}
