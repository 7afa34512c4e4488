package store

import (
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/spandelta"
)

// TestValueOfAHiddenBase adds a value that continues one that the reader does not get, which shares more with an earlier
// value than this one does.
func TestValueOfAHiddenBase(t *testing.T) {
	t.Parallel()
	first := &spandelta.Value{Rest: []byte(`[1,2,3,4]`)}
	hidden := &spandelta.Value{Base: first, Shared: len(`[1,2,3,4`), Rest: []byte(`,5]`)}
	last := &spandelta.Value{Base: hidden, Shared: len(`[1,`), Rest: []byte(`9]`)}
	s := shortSpans{places: map[*spandelta.Value]int{}}
	s.addValue(0, "ids", first)
	s.addValue(1, "ids", last)
	for i, want := range []string{`[1,2,3,4]`, `[1,9]`} {
		if got := string(s.AppendValue(nil, i)); got != want {
			t.Errorf("value %d is %s, want %s", i, got, want)
		}
	}
	if want := (agl.SpanValue{Span: 1, Name: "ids", Base: 0, Shared: len(`[1,`)}); s.Values[1].Base != want.Base || s.Values[1].Shared != want.Shared {
		t.Errorf("the last value is %+v, want it continued from the first", s.Values[1])
	}
}
