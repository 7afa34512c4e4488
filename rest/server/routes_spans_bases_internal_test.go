package server

import (
	"bytes"
	"strconv"
	"testing"

	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/rest/internal/wire"
)

func TestSpanBasesAreBounded(t *testing.T) {
	t.Parallel()
	const size, fit = 10_000, 5
	b := newSpanBases(fit*size, 1<<20)
	document := func(attempt, n int) baseDocument {
		text := bytes.Repeat([]byte{byte('a' + n)}, size)
		return baseDocument{bytes: text, SpanBase: wire.SpanBase{
			Attempt: spandelta.Attempt{RolloutID: "r", AttemptID: strconv.Itoa(attempt)}, ID: strconv.Itoa(n), Size: size, Sum: spandelta.Sum(text),
		}}
	}
	found := func(d baseDocument) bool { return bytes.Equal(b.find(&d.SpanBase), d.bytes) }
	for a := range 2 * fit {
		b.put(document(a, 0), nil)
	}
	if found(document(fit-1, 0)) || !found(document(fit, 0)) || b.used != fit*size {
		t.Errorf("%d bytes are kept, want those of the last %d attempts", b.used, fit)
	}
	// What stands for another takes its place; the attempt that was used last stays.
	first, second := document(fit, 0), document(fit, 1)
	b.put(second, &first.SpanBase)
	b.put(document(100, 0), nil)
	if found(first) || !found(second) || found(document(fit+1, 0)) || b.used != fit*size {
		t.Errorf("the first document is there: %t, the second: %t; %d bytes", found(first), found(second), b.used)
	}
	other := second
	other.Sum++
	if b.find(&other.SpanBase) != nil {
		t.Error("a document with another checksum is found")
	}
	b = newSpanBases(1<<20, 1<<20)
	for n := range 2 * basesPerAttempt {
		b.put(document(0, n), nil)
	}
	if b.used != basesPerAttempt*size || found(document(0, basesPerAttempt-1)) || !found(document(0, 2*basesPerAttempt-1)) {
		t.Errorf("%d bytes are kept of one attempt, want %d", b.used, basesPerAttempt*size)
	}
}
