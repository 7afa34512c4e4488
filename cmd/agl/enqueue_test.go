package main

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
)

// interrupting is a store whose second request the user interrupts.
type interrupting struct {
	agl.Store

	interrupt context.CancelFunc
	requests  int
}

func (s *interrupting) EnqueueRollouts(ctx context.Context, p agl.EnqueueRolloutsParams) ([]agl.Rollout, error) {
	if s.requests++; s.requests == 2 {
		s.interrupt()
		return nil, ctx.Err()
	}
	return make([]agl.Rollout, len(p.Rollouts)), nil
}

// An enqueueing that is interrupted says how far it got: a repeat would enqueue these rollouts twice.
func TestEnqueueInterrupted(t *testing.T) {
	t.Parallel()
	ctx, interrupt := context.WithCancel(t.Context())
	var out, said strings.Builder
	err := (&enqueueCommand{File: "tasks.jsonl"}).send(ctx, &console.Console{Out: &out, Err: &said}, &interrupting{interrupt: interrupt}, func(yield func(jsontext.Value, error) bool) {
		for range batchRollouts + 7 {
			if !yield(jsontext.Value("1"), nil) {
				return
			}
		}
	})
	if !errors.Is(err, context.Canceled) || said.String() != "agl: interrupted after 1000 rollouts; the next 7 may have been enqueued, too\n" {
		t.Errorf("got %v, and it said %q", err, said.String())
	}
}
