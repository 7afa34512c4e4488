package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// gathering is a store whose deletions wait until many are under way, and which is gone after some.
type gathering struct {
	agl.Store

	mu       sync.Mutex
	many     sync.WaitGroup // of the first deletions
	deleted  int
	gone     int // after so many deletions nobody answers; 0 is never
	together int // how many deletions wait for each other
}

func (g *gathering) DeleteRollout(ctx context.Context, p agl.DeleteRolloutParams) error {
	g.mu.Lock()
	g.deleted++
	first, gone := g.deleted <= g.together, g.gone > 0 && g.deleted > g.gone
	g.mu.Unlock()
	if first {
		g.many.Done()
		g.many.Wait()
	}
	if gone {
		return agl.Errorf(agl.CodeUnavailable, "the store is gone")
	}
	return g.Store.DeleteRollout(ctx, p)
}

// TestForgetPrompts: the rounds of a run that tunes prompts on live sessions say what they were made from.
func TestForgetPrompts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	lines := `{"step":1,"parent":"a","learned":["ro-1","ro-2"],"candidate":"b","spent":{}}
{"step":1,"parent":"a","candidate":"b","state":"promoted","spent":{}}
{"step":2,"parent":"b","learned":["ro-3"],"candidate":"c","spent":{}}
`
	if err := os.WriteFile(filepath.Join(dir, "metrics.jsonl"), []byte(lines), 0o600); err != nil {
		t.Fatal(err)
	}
	seen, err := learnedFrom(dir, map[string]agl.RolloutStatus{"ro-2": agl.RolloutSucceeded, "ro-3": agl.RolloutSucceeded, "ro-4": agl.RolloutSucceeded})
	if want := (learned{first: 1, last: 2, sessions: 2}); err != nil || seen != want {
		t.Errorf("got %+v, %v, want %+v", seen, err, want)
	}
}

// TestForgetMany: a user's sessions are deleted many at a time. What is left when the store is gone is deleted by a repeat, and nothing
// of others.
func TestForgetMany(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	const own, others = 500, 20
	for n := range own + others {
		user := `{"agl.user":"ada"}`
		if n >= own {
			user = `{"agl.user":"bob"}`
		}
		r, err := st.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Metadata: []byte(user)}})
		if err != nil {
			t.Fatal(err)
		}
		if status := agl.AttemptSucceeded; n%10 > 0 { // the others are running
			if _, err := st.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status}); err != nil {
				t.Fatal(err)
			}
		}
	}
	left := func() int {
		page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
		if err != nil {
			t.Fatal(err)
		}
		return page.Total
	}
	c := &forgetCommand{User: "ada"}
	out := &console.Console{Out: io.Discard, Err: io.Discard}
	cut := &gathering{Store: st, gone: 200, together: 32}
	cut.many.Add(32)
	if err := c.use(t.Context(), out, cut); !errors.Is(err, agl.ErrUnavailable) {
		t.Fatalf("got %v, want that the store is gone", err)
	}
	if n := left(); n <= others || n >= own+others {
		t.Errorf("%d sessions are left", n)
	}
	if err := c.use(t.Context(), out, st); err != nil || left() != others {
		t.Errorf("after the repeat %d sessions are left, want the %d of others; %v", left(), others, err)
	}
}
