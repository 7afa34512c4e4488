package archive_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/archive"
)

// TestConversation exports spans that continue each other: whole, and an import makes them
// small again.
func TestConversation(t *testing.T) {
	t.Parallel()
	const turns = 40
	d := newMemory(t, 0)
	s := reopen(t, d)
	defer closeStore(t, s)
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	source := rand.New(rand.NewPCG(1, 2))
	var prompt strings.Builder
	var want []string
	size := 0
	for i := range turns {
		fmt.Fprintf(&prompt, `,"prompt.%d":"%0400d"`, i, source.Uint64())
		span := agl.Span{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: fmt.Sprint("span-", i), Name: "call", SequenceID: int64(i + 1),
			Attributes: agl.Attributes("{" + prompt.String()[1:] + "}"),
		}
		if _, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}}); err != nil {
			t.Fatal(err)
		}
		want = append(want, string(span.AppendJSON(nil)))
		size += len(want[i])
	}
	file := export(t, d)
	for i, document := range want {
		if !bytes.Contains(file, []byte(document)) {
			t.Errorf("the export does not have span %d whole: %.200s", i, document)
		}
	}
	copied := newMemory(t, 0)
	if _, err := archive.Import(t.Context(), copied, bytes.NewReader(file), nil); err != nil {
		t.Fatal(err)
	}
	wantCopy(t, copied, file)
	stored := 0
	for r, err := range copied.Export(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if r.Span != nil {
			stored += len(r.Span.Payload)
		}
	}
	if stored > size/8 {
		t.Errorf("the copy keeps %d bytes of %d, want at most an eighth", stored, size)
	}
}
