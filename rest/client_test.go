package rest_test

import (
	"context"
	"errors"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/rest"
)

func TestClientReachesStore(t *testing.T) {
	t.Parallel()
	store := &stubStore{
		enqueue: func(_ context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
			if p.IdempotencyKey == "" {
				t.Error("enqueue came without an idempotency key")
			}
			out := make([]agl.Rollout, len(p.Rollouts))
			for i, r := range p.Rollouts {
				out[i] = agl.Rollout{RolloutID: "ro-1", Input: r.Input, Status: agl.RolloutQueuing, Metadata: []byte("{}")}
			}
			return out, nil
		},
		get: func(context.Context, agl.GetRolloutParams) (agl.AttemptedRollout, error) {
			return agl.AttemptedRollout{}, agl.Errorf(agl.CodeNotFound, "Rollout nope not found")
		},
	}
	client := serve(t, store, 0)
	got, err := client.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: []byte(`{"a": 1.0}`)}}})
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || string(got[0].Input) != `{"a": 1.0}` {
		t.Errorf("got %+v", got)
	}
	if _, err := client.GetRollout(t.Context(), agl.GetRolloutParams{RolloutID: "nope"}); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("error is %v, want not found", err)
	}
	if _, err := client.StartRollout(t.Context(), agl.StartRolloutParams{}); !errors.Is(err, agl.ErrUnimplemented) {
		t.Errorf("error is %v, want unimplemented", err)
	}
}

// copyOf returns a span that shares no memory with s, as a store keeps it.
func copyOf(t *testing.T, s *agl.Span) (kept agl.Span) {
	t.Helper()
	if err := rawjson.Unmarshal(s.AppendJSON(nil), &kept); err != nil {
		t.Error(err)
	}
	return kept
}

// Spans in their wire form arrive as those that the client writes itself do, in
// as many requests as it takes, whatever becomes of their memory afterwards.
func TestClientSendsSpansJSON(t *testing.T) {
	t.Parallel()
	var got []agl.Span
	away := true
	requests := 0
	store := &stubStore{addSpan: func(_ context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
		if requests++; away {
			away = false
			return agl.AddSpansResult{}, agl.Errorf(agl.CodeUnavailable, "away")
		}
		for i := range p.Spans {
			got = append(got, copyOf(t, &p.Spans[i]))
		}
		return agl.AddSpansResult{Stored: p.Spans, Cancelled: []string{p.Spans[0].AttemptID}}, nil
	}}
	server := httptest.NewServer(newServer(t, rest.ServerConfig{Store: store}))
	defer server.Close()
	client, err := rest.NewClient(rest.ClientConfig{URL: server.URL, SpanBatch: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	var want []agl.Span
	var memory []byte
	docs := make([]jsontext.Value, 5)
	for i := range docs {
		text, err := agl.NewAttributes(agl.Attr{Key: "text", Value: strings.Repeat("x", i*50_000)})
		if err != nil {
			t.Fatal(err)
		}
		s := agl.Span{
			RolloutID: "r", AttemptID: "a" + strconv.Itoa(i), SequenceID: int64(i + 1), TraceID: "t", SpanID: strconv.Itoa(i), Name: "n",
			Status: agl.SpanStatus{Code: agl.StatusOK}, Attributes: text, Resource: agl.SpanResource{Attributes: agl.Attributes("{}")},
		}
		want = append(want, s)
		from := len(memory)
		memory = s.AppendJSON(memory)
		docs[i] = memory[from:]
	}
	added, err := client.AddSpansJSON(t.Context(), agl.AddSpansJSONParams{Spans: docs})
	clear(memory)
	if err != nil || !slices.Equal(added.Cancelled, []string{"a0", "a3"}) || requests != 3 {
		t.Errorf("cancelled %q after %d requests, %v", added.Cancelled, requests, err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestClientTellsCause(t *testing.T) {
	t.Parallel()
	client := serve(t, &stubStore{}, 0)
	cause := errors.New("the lights went out")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(cause)
	for name, call := range map[string]func() error{
		"GetRollout":      func() error { _, err := client.GetRollout(ctx, agl.GetRolloutParams{RolloutID: "ro-1"}); return err },
		"DequeueRollouts": func() error { _, err := client.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1}); return err },
		"Events": func() (last error) {
			for _, err := range client.Events(ctx, agl.EventsParams{}) {
				last = err
			}
			return last
		},
	} {
		if err := call(); !errors.Is(err, context.Canceled) || !errors.Is(err, cause) {
			t.Errorf("%s: error is %v, want the context's with its cause", name, err)
		}
	}
}
