package server_test

import (
	"context"
	"hash/maphash"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/rest/internal/wire"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store/memory/memorytest"
)

func sendShort(t testing.TB, api http.Handler, body []byte) *httptest.ResponseRecorder {
	t.Helper()
	return ask(t, api, http.MethodPost, "/v1/agl/spans/batch", string(body), "Content-Type", wire.ShortSpans)
}

// spanOf is a span with a text of some length.
func spanOf(t testing.TB, r *agl.AttemptedRollout, id, text string) []byte {
	t.Helper()
	attributes, err := agl.NewAttributes(agl.Attr{Key: "text", Value: text})
	if err != nil {
		t.Fatal(err)
	}
	s := agl.Span{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SequenceID: 1, SpanID: id, Name: "call", Attributes: attributes}
	return s.AppendJSON(nil)
}

func shortSpan(first, second []byte, attempt spandelta.Attempt) wire.ShortSpan {
	seed := maphash.MakeSeed()
	base := spandelta.NewLayout(seed, first)
	delta := spandelta.NewCodec().Compress(base.Delta(second, spandelta.NewLayout(seed, second)))
	return wire.ShortSpan{Bytes: delta, Base: &wire.SpanBase{Attempt: attempt, ID: "1", Size: len(first), Sum: spandelta.Sum(first)}}
}

// TestShortSpansAreChecked: what is wrong with a body is said, and nothing of it is stored.
func TestShortSpansAreChecked(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	api := newServer(t, server.Config{Store: store, MaxBodyBytes: 1 << 20})
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	own := spandelta.Attempt{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
	first, second := spanOf(t, &r, "1", strings.Repeat("x", 2000)), spanOf(t, &r, "2", strings.Repeat("x", 3000))
	large := spanOf(t, &r, "3", strings.Repeat("x", 600_000))
	whole := wire.ShortSpan{Bytes: first}
	other := shortSpan(first, second, own)
	other.Base.Sum++
	damaged := shortSpan(first, second, own)
	damaged.Bytes[3] ^= 1
	foreign := spandelta.Attempt{RolloutID: r.RolloutID, AttemptID: "at-other"}
	short := func(spans ...wire.ShortSpan) []byte { return wire.AppendShortSpans(nil, false, spans) }
	ctx := context.WithoutCancel(t.Context())
	t.Cleanup(func() {
		page, err := store.QuerySpansJSON(ctx, agl.QuerySpansParams{RolloutID: r.RolloutID})
		if err != nil || len(page.Items) != 0 {
			t.Errorf("%d spans are stored, %v", len(page.Items), err)
		}
	})
	for name, tc := range map[string]struct {
		body   []byte
		status int
		says   string
	}{
		"nothing":           {[]byte("\x01"), 400, "must begin with"},
		"unknown form":      {[]byte("\x02\x00"), 400, "must begin with"},
		"unknown flag":      {[]byte("\x01\x02"), 400, "must begin with"},
		"cut":               {short(whole)[:500], 400, "ends within a span"},
		"not JSON":          {short(wire.ShortSpan{Bytes: []byte("x")}), 422, "JSON"},
		"two for one":       {short(wire.ShortSpan{Bytes: []byte(string(first) + "," + string(second))}), 400, "2 spans"},
		"unknown base":      {short(shortSpan(first, second, own)), 409, "unknown_base"},
		"other content":     {short(whole, other), 409, "unknown_base"},
		"damaged":           {short(whole, damaged), 409, "unknown_base"},
		"another attempt's": {short(whole, shortSpan(first, second, foreign)), 400, "must be of the same"},
		"larger than told":  {short(wire.ShortSpan{Bytes: large}, shortSpan(large, []byte(strings.Replace(string(large), `"3"`, `"4"`, 1)), own)), 413, "1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := sendShort(t, api, tc.body)
			if w.Code != tc.status || !strings.Contains(w.Body.String(), tc.says) {
				t.Errorf("status %d, %s; want %d and %q", w.Code, w.Body, tc.status, tc.says)
			}
		})
	}
}

// takesSpans is a store that takes all spans.
type takesSpans struct{ agl.UnimplementedStore }

func (takesSpans) AddSpans(_ context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	return agl.AddSpansResult{Stored: p.Spans}, nil
}

// FuzzShortSpans sends any body in the short form, after a span that it may continue.
func FuzzShortSpans(f *testing.F) {
	api := newServer(f, server.Config{Store: takesSpans{}})
	r := agl.AttemptedRollout{Rollout: agl.Rollout{RolloutID: "ro-1"}, Attempt: &agl.Attempt{AttemptID: "at-1"}}
	first, second := spanOf(f, &r, "1", strings.Repeat("x", 2000)), spanOf(f, &r, "2", strings.Repeat("x", 3000))
	base := wire.AppendShortSpans(nil, false, []wire.ShortSpan{{Bytes: first}})
	own := spandelta.Attempt{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID}
	f.Add(base)
	f.Add(wire.AppendShortSpans(nil, true, []wire.ShortSpan{shortSpan(first, second, own)}))
	f.Fuzz(func(t *testing.T, body []byte) {
		if w := sendShort(t, api, base); w.Code != http.StatusCreated {
			t.Fatalf("the base: %d %s", w.Code, w.Body)
		}
		w := sendShort(t, api, body)
		if w.Code >= http.StatusInternalServerError || !jsontext.Value(w.Body.Bytes()).IsValid(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) {
			t.Fatalf("%d %q", w.Code, w.Body)
		}
		// What was stored is what its delta stands for, or the checksum would have told.
		spans, _, err := wire.ReadShortSpans(body)
		if w.Code == http.StatusCreated && err != nil {
			t.Fatalf("%d spans were taken of a body that cannot be read: %v", len(spans), err)
		}
	})
}
