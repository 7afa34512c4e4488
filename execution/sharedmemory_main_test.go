package execution

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"

	"github.com/agl-go/agl"
)

// goroutine is the name of the goroutine that calls it.
func goroutine() string {
	var stack [64]byte
	name, _, _ := strings.Cut(string(stack[:runtime.Stack(stack[:], false)]), " [")
	return name
}

// The side that is chosen has the goroutine of the caller, and the others have their own.
func TestSharedMemoryMain(t *testing.T) {
	t.Parallel()
	for _, main := range []Role{"", RoleAlgorithm, RoleRunner} {
		t.Run("main "+string(main), func(t *testing.T) {
			t.Parallel()
			g := &gate{}
			const runners = 2
			names := make(chan [2]string, 1+runners)
			err := SharedMemory{Main: main}.Execute(t.Context(), Parts{
				Runners: runners, OpenStore: g.open,
				Algorithm: func(context.Context, agl.Store) error {
					names <- [2]string{"algorithm", goroutine()}
					return nil
				},
				Runner: func(ctx context.Context, _ agl.Store, worker int) error {
					names <- [2]string{runnerName(worker), goroutine()}
					return drains(0)(ctx, g)
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			want := map[Role]string{RoleAlgorithm: "algorithm", RoleRunner: "runner 0"}[main]
			for range 1 + runners {
				if part := <-names; (part[1] == goroutine()) != (part[0] == want) {
					t.Errorf("%s ran on %s, the caller is %s", part[0], part[1], goroutine())
				}
			}
		})
	}
}

// A failure before the parts start, and of the side with the goroutine of the caller, is
// returned as ever.
func TestSharedMemoryMainFails(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		main  Role
		parts func(g *gate) Parts
		want  error
	}{
		"setup": {RoleAlgorithm, func(g *gate) Parts {
			return Parts{
				OpenStore: g.open, Algorithm: func(context.Context, agl.Store) error { return nil },
				Runner: func(context.Context, agl.Store, int) error { return nil },
				Setup:  func(context.Context, agl.Store) (func(context.Context) error, error) { return nil, boom },
			}
		}, boom},
		"the algorithm": {RoleAlgorithm, func(g *gate) Parts {
			return Parts{
				OpenStore: g.open, Algorithm: func(context.Context, agl.Store) error { return boom },
				Runner: func(ctx context.Context, _ agl.Store, _ int) error { return drains(0)(ctx, g) },
			}
		}, boom},
		"no algorithm": {RoleAlgorithm, func(g *gate) Parts {
			return Parts{OpenStore: g.open, Runner: func(context.Context, agl.Store, int) error { return nil }}
		}, agl.ErrInvalid},
		"no such side": {"store", func(g *gate) Parts {
			return Parts{OpenStore: g.open, Runner: func(context.Context, agl.Store, int) error { return nil }}
		}, agl.ErrInvalid},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := &gate{}
			if err := (SharedMemory{Main: test.main}).Execute(t.Context(), test.parts(g)); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
			if name == "setup" && g.queueClosed() != nil {
				t.Error("the queue was opened; another run may be using it")
			}
		})
	}
}
