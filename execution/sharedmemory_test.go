package execution

import (
	"context"
	"errors"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
)

// gate is a store whose queue can only be opened and closed.
type gate struct {
	agl.UnimplementedStore
	mu     sync.Mutex
	closed chan struct{}
	shut   bool // Close was called
	fail   error
}

func (*gate) Capabilities() agl.Capabilities { return agl.Capabilities{CloseQueue: true} }

func (g *gate) OpenQueue(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = make(chan struct{})
	return nil
}

func (g *gate) CloseQueue(context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fail != nil {
		return g.fail
	}
	close(g.closed)
	return nil
}

func (g *gate) queueClosed() <-chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

func (g *gate) open(context.Context) (OpenedStore, error) {
	return OpenedStore{Store: g, Close: func() error { g.shut = true; return nil }}, nil
}

// The ways in which the parts of a test behave.
type behaviour = func(ctx context.Context, g *gate) error

func returns(err error) behaviour { return func(context.Context, *gate) error { return err } }

func returnsAfter(d time.Duration, err error) behaviour {
	return func(ctx context.Context, _ *gate) error {
		select {
		case <-time.After(d):
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// drains serves until the queue is closed, and needs d for what it has then.
func drains(d time.Duration) behaviour {
	return func(ctx context.Context, g *gate) error {
		select {
		case <-g.queueClosed():
			return returnsAfter(d, nil)(ctx, g)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// deaf hears neither the queue nor its context, for an hour.
func deaf(context.Context, *gate) error { time.Sleep(time.Hour); return nil }

func TestSharedMemoryWhoEndsFirst(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	tests := map[string]struct {
		algorithm behaviour // nil for none
		runners   []behaviour
		// interrupts are when the user presses Ctrl-C.
		interrupts []time.Duration
		queueFails bool
		want       error // nil, boom or an *InterruptError
		mentions   []string
		warning    string
		after      time.Duration // when Execute returns, exactly
	}{
		"the algorithm, runners drain": {
			algorithm: returnsAfter(time.Second, nil), runners: []behaviour{drains(2 * time.Second), drains(0)}, after: 3 * time.Second,
		},
		"the algorithm, a runner outlives the join": {
			algorithm: returnsAfter(time.Second, nil), runners: []behaviour{drains(time.Minute)}, after: 16 * time.Second,
		},
		"the algorithm, a runner is deaf": {
			algorithm: returns(nil), runners: []behaviour{deaf}, after: 20 * time.Second, mentions: []string{"runner 0", "20s"},
		},
		"the algorithm fails": {
			algorithm: returnsAfter(time.Second, boom), runners: []behaviour{drains(2 * time.Second)},
			want: boom, mentions: []string{"algorithm"}, after: 3 * time.Second,
		},
		"the algorithm panics": {
			algorithm: func(context.Context, *gate) error { panic(boom) }, runners: []behaviour{drains(2 * time.Second)},
			want: boom, mentions: []string{"algorithm: panic: boom, at ", "sharedmemory_test.go:"}, after: 2 * time.Second,
		},
		"the algorithm ends its goroutine": {
			algorithm: func(context.Context, *gate) error { runtime.Goexit(); return nil }, runners: []behaviour{drains(2 * time.Second)},
			mentions: []string{"algorithm: it ended its goroutine"}, after: 2 * time.Second,
		},
		"a runner panics": {
			algorithm: returnsAfter(time.Hour, nil), runners: []behaviour{func(context.Context, *gate) error { panic(boom) }},
			want: boom, mentions: []string{"runner 0: panic"},
		},
		"the algorithm fails, a runner is slow": {
			algorithm: returnsAfter(time.Second, boom), runners: []behaviour{drains(time.Minute)},
			want: boom, after: 6 * time.Second,
		},
		"the queue cannot be closed": {
			algorithm: returnsAfter(time.Second, nil), runners: []behaviour{drains(0)}, queueFails: true,
			mentions: []string{"the queue is stuck"}, after: time.Second,
		},
		"all runners, the algorithm goes on": {
			algorithm: returnsAfter(time.Hour, nil), runners: []behaviour{returns(nil), returnsAfter(time.Second, nil)}, after: time.Hour,
			warning: "all runners have ended before the algorithm",
		},
		"a runner fails": {
			algorithm: returnsAfter(time.Hour, nil), runners: []behaviour{drains(0), returnsAfter(time.Second, boom)},
			want: boom, mentions: []string{"runner 1"}, after: time.Second,
		},
		"a runner fails, the algorithm is deaf": {
			algorithm: deaf, runners: []behaviour{returns(boom)}, want: boom, after: 5 * time.Second,
		},
		"no algorithm": {runners: []behaviour{returnsAfter(time.Second, nil)}, after: time.Second},
		"Ctrl-C": {
			algorithm: returnsAfter(time.Hour, nil), runners: []behaviour{drains(2 * time.Second)},
			interrupts: []time.Duration{time.Second}, want: &InterruptError{}, after: 3 * time.Second,
		},
		"Ctrl-C and a slow runner": {
			algorithm: returnsAfter(time.Hour, nil), runners: []behaviour{drains(time.Minute)},
			interrupts: []time.Duration{time.Second}, want: &InterruptError{}, after: 6 * time.Second,
		},
		"Ctrl-C twice": {
			algorithm: deaf, runners: []behaviour{drains(time.Minute), deaf},
			interrupts: []time.Duration{time.Second, 2 * time.Second}, want: &InterruptError{}, after: 2*time.Second + atOnce,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := &gate{}
				if test.queueFails {
					g.fail = errors.New("the queue is stuck")
				}
				force, insist := context.WithCancel(t.Context())
				defer insist()
				ctx, cancel := context.WithCancelCause(context.WithValue(t.Context(), forceKey{}, force))
				defer cancel(nil)
				for n, at := range test.interrupts {
					time.AfterFunc(at, func() {
						if n == 0 {
							cancel(&InterruptError{})
						} else {
							insist()
						}
					})
				}
				parts := Parts{
					Runners: len(test.runners), OpenStore: g.open,
					Runner: func(ctx context.Context, _ agl.Store, worker int) error { return test.runners[worker](ctx, g) },
				}
				if test.algorithm != nil {
					parts.Algorithm = func(ctx context.Context, _ agl.Store) error { return test.algorithm(ctx, g) }
				}
				start := time.Now()
				var log strings.Builder
				logger := slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))
				err := SharedMemory{GraceTimeout: 5 * time.Second, Logger: logger}.Execute(ctx, parts)
				took := time.Since(start)
				time.Sleep(2 * time.Hour) // for the deaf

				checkEnd(t, err, test.want, test.mentions)
				if took != test.after {
					t.Errorf("returned after %s, want %s", took, test.after)
				}
				if !strings.Contains(log.String(), test.warning) || test.warning == "" && strings.Contains(log.String(), "all runners") {
					t.Errorf("logged %q, want %q", log.String(), test.warning)
				}
				if !g.shut {
					t.Error("the store was not closed")
				}
				if !test.queueFails && !background.Closed(g.closed) {
					t.Error("the queue was not closed")
				}
			})
		})
	}
}

func checkEnd(t *testing.T, err, want error, mentions []string) {
	t.Helper()
	var interrupt *InterruptError
	switch {
	case errors.As(want, &interrupt):
		if !errors.As(err, &interrupt) {
			t.Errorf("error %v, want an interrupt", err)
		}
	case want != nil:
		if !errors.Is(err, want) {
			t.Errorf("error %v, want %v", err, want)
		}
	case err != nil && len(mentions) == 0:
		t.Errorf("error %v, want none", err)
	case err == nil && len(mentions) > 0:
		t.Errorf("no error, want one with %q", mentions)
	}
	if err == nil {
		return
	}
	if missing := slices.IndexFunc(mentions, func(m string) bool { return !strings.Contains(err.Error(), m) }); missing >= 0 {
		t.Errorf("error %q does not mention %q", err, mentions[missing])
	}
}

// What ends the run is the cause of the algorithm's context.
func TestStopCause(t *testing.T) {
	t.Parallel()
	boom := errors.New("boom")
	for name, test := range map[string]struct {
		runner error
		signal bool
		want   string
	}{
		"a runner fails": {runner: boom, want: "runner 0: boom"},
		"Ctrl-C":         {signal: true, want: (&InterruptError{}).Error()},
	} {
		synctest.Test(t, func(t *testing.T) {
			g := &gate{}
			ctx, interrupt := context.WithCancelCause(t.Context())
			var cause error
			parts := Parts{
				OpenStore: g.open,
				Algorithm: func(ctx context.Context, _ agl.Store) error {
					if test.signal {
						interrupt(&InterruptError{})
					}
					<-ctx.Done()
					cause = context.Cause(ctx)
					return ctx.Err()
				},
				Runner: func(ctx context.Context, _ agl.Store, _ int) error {
					if test.runner != nil {
						return test.runner
					}
					return drains(0)(ctx, g)
				},
			}
			err := (SharedMemory{}).Execute(ctx, parts)
			stopped, ok := errors.AsType[*StopError](cause)
			if !ok || stopped.Cause.Error() != test.want || !errors.Is(cause, context.Canceled) || err == nil || err.Error() != test.want {
				t.Errorf("%s: the cause is %v, the error %v, want both to be %q", name, cause, err, test.want)
			}
		})
	}
}

func TestSharedMemoryRejects(t *testing.T) {
	t.Parallel()
	g := &gate{}
	runner := func(context.Context, agl.Store, int) error { return nil }
	for name, parts := range map[string]Parts{
		"no runner":        {OpenStore: g.open},
		"no store":         {Runner: runner},
		"negative runners": {Runner: runner, Runners: -1, OpenStore: g.open},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := (SharedMemory{}).Execute(t.Context(), parts); !errors.Is(err, agl.ErrInvalid) {
				t.Errorf("error %v, want ErrInvalid", err)
			}
		})
	}
}
