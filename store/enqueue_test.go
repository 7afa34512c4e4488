package store_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/storetest"
)

// failing is a driver whose commits fail while fail says so. It knows how many rollouts the largest commit had.
type failing struct {
	driver.Driver

	fail    func(commit int) bool
	commits int
	largest int
}

func (f *failing) Begin(ctx context.Context) (driver.Tx, error) {
	tx, err := f.Driver.Begin(ctx)
	return failingTx{tx, f}, err
}

type failingTx struct {
	driver.Tx

	driver *failing
}

func (t failingTx) Apply(ctx context.Context, c *driver.Changes) error {
	t.driver.commits++
	if t.driver.fail(t.driver.commits) {
		return agl.Errorf(agl.CodeUnavailable, "the disk is away")
	}
	t.driver.largest = max(t.driver.largest, len(c.Rollouts))
	return t.Tx.Apply(ctx, c)
}

// A call that enqueues many rollouts does so in several commits, between which other writes come. If one of them fails, a repeat goes on.
func TestEnqueueInParts(t *testing.T) {
	t.Parallel()
	d := &failing{Driver: newMemory(t, storetest.OpenParams{}), fail: func(commit int) bool { return commit == 2 }}
	s := openDriver(t, d)
	const n = 10_001
	p := agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, n), IdempotencyKey: "k"}
	for i := range p.Rollouts {
		p.Rollouts[i].Input = jsontext.Value(strconv.Itoa(i))
	}
	if _, err := s.EnqueueRollouts(t.Context(), p); !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "the first 5000 of 10001 rollouts are enqueued") {
		t.Fatalf("error %v, want one that says what is enqueued", err)
	}
	var first []agl.Rollout
	for range 2 {
		made, err := s.EnqueueRollouts(t.Context(), p)
		if err != nil || len(made) != n || first != nil && made[n-1].RolloutID != first[n-1].RolloutID {
			t.Fatalf("a repeat has %d rollouts, error %v, want %d, each time the same", len(made), err, n)
		}
		first = made
	}
	page, err := s.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil || page.Total != n || d.largest != n/2 {
		t.Fatalf("%d rollouts, the largest commit with %d, error %v, want %d, %d", page.Total, d.largest, err, n, n/2)
	}
	for i := range page.Items {
		if got := string(page.Items[i].Input); got != strconv.Itoa(i) || page.Items[i].RolloutID != first[i].RolloutID {
			t.Fatalf("rollout %d has the input %s", i, got)
		}
	}
	p.Rollouts[n-1].Input = jsontext.Value(`0`)
	if _, err := s.EnqueueRollouts(t.Context(), p); !errors.Is(err, agl.ErrConflict) {
		t.Errorf("the key with another last input: error %v", err)
	}
}
