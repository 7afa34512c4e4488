package client_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// wholeOnly is a store without the short form, as that of an older server.
type wholeOnly struct{ agl.Store }

func (w wholeOnly) Capabilities() agl.Capabilities {
	c := w.Store.Capabilities()
	c.QueryShortSpans = false
	return c
}

// TestReadShort: what an algorithm reads of a conversation over HTTP grows with the conversation and not with its square, and is the same
// from a server that has only whole spans.
func TestReadShort(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	written := 0
	for turn := range 60 {
		for i := range 100 {
			ids = append(ids, fmt.Sprint(1000*turn+i))
		}
		span := agl.Span{
			RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: fmt.Sprint(turn), Name: agl.SpanLiteLLMRequest, SequenceID: int64(turn + 1),
			Attributes: agl.Attributes(fmt.Sprintf(`{"gen_ai.prompt.0.content":"said %d","gen_ai.response.id":"r%d","prompt_token_ids":[%s],"response_token_ids":[%d]}`,
				turn, turn, strings.Join(ids, ","), 1000*turn+100)),
		}
		ids = append(ids, fmt.Sprint(1000*turn+100))
		written += len(span.Attributes)
		if _, err := store.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{span}}); err != nil {
			t.Fatal(err)
		}
	}
	read := func(s agl.Store) (triplets []adapter.Triplet, size int) {
		spans, err := agl.QuerySpansFor(t.Context(), serve(t, s, time.Minute), agl.QuerySpansParams{RolloutID: r.RolloutID}, adapter.ProxyTriplets{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range spans.Spans {
			size += len(spans.Spans[i].Attributes)
		}
		for _, v := range spans.Values {
			size += len(v.Rest)
		}
		if triplets, err = agl.AdaptSpans(adapter.ProxyTriplets{}, spans); err != nil {
			t.Fatal(err)
		}
		return triplets, size
	}
	short, size := read(store)
	whole, _ := read(wholeOnly{store})
	if len(short) != 60 {
		t.Errorf("%d triplets, want 60", len(short))
	}
	if diff := cmp.Diff(whole, short); diff != "" {
		t.Errorf("triplets (-of whole spans +of short ones):\n%s", diff)
	}
	if size > written/5 {
		t.Errorf("%d bytes of attributes were read of %d, want at most a fifth", size, written)
	}
}
