package rest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/agl-go/agl"
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
