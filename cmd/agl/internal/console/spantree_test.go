package console

import (
	"strings"
	"testing"

	"github.com/charmbracelet/x/ansi"
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

// A span of a machine whose clock is behind began before its attempt.
func TestSpanBeforeItsAttempt(t *testing.T) {
	t.Parallel()
	span := agl.Span{Name: "call", StartTime: agl.Some[agl.Timestamp](40), EndTime: agl.Some[agl.Timestamp](42)}
	for start, want := range map[agl.Timestamp]string{3640: "-1h0m0s 2s  call", 39: "+1s 2s  call"} {
		if got := ansi.Strip(spanLine(start, &span)); got != want {
			t.Errorf("after %v: got %q, want %q", start, got, want)
		}
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
