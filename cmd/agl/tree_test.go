package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
)

// drawn renders spans given as "id<parent" by their ids alone.
func drawn(spans []agl.Span) []string {
	var lines []string
	var walk func(nodes []*spanNode, indent string)
	walk = func(nodes []*spanNode, indent string) {
		for _, n := range nodes {
			lines = append(lines, indent+n.span.SpanID)
			walk(n.children, indent+" ")
		}
	}
	walk(spanForest(spans), "")
	return lines
}

func parseSpans(given ...string) []agl.Span {
	var spans []agl.Span
	for _, g := range given {
		id, parent, child := strings.Cut(g, "<")
		s := agl.Span{SpanID: id}
		if child {
			s.ParentID = agl.Some(parent)
		}
		spans = append(spans, s)
	}
	return spans
}

func TestSpanForest(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ given, want []string }{
		"nothing":                        {nil, nil},
		"siblings keep their order":      {[]string{"a", "c<a", "b<a"}, []string{"a", " c", " b"}},
		"a child may come first":         {[]string{"b<a", "a"}, []string{"a", " b"}},
		"a parent that is not there":     {[]string{"a<x", "b<a"}, []string{"a", " b"}},
		"its own parent":                 {[]string{"a<a", "b<a"}, []string{"a", " b"}},
		"a loop":                         {[]string{"a<b", "b<c", "c<a", "d<b"}, []string{"a", " c", "  b", "   d"}},
		"two loops and a tail":           {[]string{"a<b", "b<a", "c<d", "d<c", "e<d"}, []string{"a", " b", "c", " d", "  e"}},
		"an id twice":                    {[]string{"a", "a", "b<a"}, []string{"a", " b", "a"}},
		"an empty id has no descendants": {[]string{"", "a"}, []string{"", "a"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(test.want, drawn(parseSpans(test.given...))); diff != "" {
				t.Errorf("tree (-want +got):\n%s", diff)
			}
		})
	}
}

// TestSpanForestLosesNothing: whatever the parents are, each span is drawn once.
func TestSpanForestLosesNothing(t *testing.T) {
	t.Parallel()
	ids := rapid.SampledFrom([]string{"", "a", "b", "c", "d", "e", "f"})
	rapid.Check(t, func(t *rapid.T) {
		spans := make([]agl.Span, rapid.IntRange(0, 12).Draw(t, "spans"))
		want := map[string]int{}
		for i := range spans {
			spans[i] = agl.Span{SpanID: ids.Draw(t, "id")}
			if parent := ids.Draw(t, "parent"); parent != "" {
				spans[i].ParentID = agl.Some(parent)
			}
			want[spans[i].SpanID]++
		}
		got := map[string]int{}
		for _, line := range drawn(spans) {
			got[strings.TrimLeft(line, " ")]++
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("spans by id (-want +got):\n%s", diff)
		}
	})
}

func TestLimit(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		want limit
		ok   bool
	}{
		"0.7":        {limit{Ratio: 0.7}, true},
		"1.0":        {limit{Ratio: 1}, true},
		"1073741824": {limit{Bytes: 1 << 30}, true},
		"2GiB":       {limit{Bytes: 2 << 30}, true},
		"5 MiB":      {limit{Bytes: 5 << 20}, true},
		"10B":        {limit{Bytes: 10}, true},
		"1":          {limit{Bytes: 1}, true},
		"1.1":        {},
		"-0.1":       {},
		"0":          {},
		"-5":         {},
		"GiB":        {},
		"9999999TiB": {},
		"1e400":      {},
		"":           {},
	}
	for text, test := range tests {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			var got limit
			if err := got.UnmarshalText([]byte(text)); (err == nil) != test.ok {
				t.Fatalf("error %v, want ok %t", err, test.ok)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("limit (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrintable(t *testing.T) {
	t.Parallel()
	for given, want := range map[string]string{
		"plain":                  "plain",
		"two\nlines\tand tab":    "two lines and tab",
		"\x1b[2J":                "\uFFFD[2J",
		"\u202Eback":             "\uFFFDback",
		"日本":                     "日本",
		"bad \xff":               "bad \uFFFD",
		strings.Repeat("é", 130): strings.Repeat("é", 120) + "…",
	} {
		if got := printable(given); got != want {
			t.Errorf("printable(%q) = %q, want %q", given, got, want)
		}
	}
}
