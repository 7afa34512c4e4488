package execution

import (
	"bytes"
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func openMemory(ctx context.Context) (OpenedStore, error) {
	driver, err := memory.New(memory.Config{})
	if err != nil {
		return OpenedStore{}, err
	}
	s, err := store.New(ctx, store.Config{Driver: driver})
	if err != nil {
		return OpenedStore{}, err
	}
	return OpenedStore{Store: s, Close: func() error { return s.Close(context.WithoutCancel(ctx)) }}, nil
}

// drained is a runner that takes nothing and leaves when the queue is closed.
func drained(ctx context.Context, s agl.Store, _ int) error {
	for {
		res, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Minute})
		if err != nil || res.Closed {
			return err
		}
	}
}

func freePort(c *ClientServer) { c.Role, c.Host, c.AnyPort = RoleBoth, "127.0.0.1", true }

func TestClientServerChildProcesses(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		script    string // of each runner process
		allowed   []int
		algorithm error
		want      string // in the error; empty is none
	}{
		"they end well":              {script: "exit 0"},
		"an exit code is an error":   {script: "exit 3", want: "exit status 3"},
		"an exit code is allowed":    {script: "exit 3", allowed: []int{0, 3}},
		"SIGTERM is allowed":         {script: "kill -TERM $$"},
		"another signal is an error": {script: "kill -USR1 $$", want: "signal: user defined signal 1"},
		"they know their role":       {script: `[ "$AGL_CURRENT_ROLE $AGL_LIFELINE_FD" = "runner 3" ] || exit 1`},
		"they know their number":     {script: `[ "$AGL_RUNNER_PROCESS" -lt 2 ] || exit 1`},
		"they know the store":        {script: `case "$AGL_STORE_URL" in http://127.0.0.1:*) ;; *) exit 1 ;; esac`},
		"they know the token":        {script: `[ "$AGL_TOKEN" = secret ] || exit 1`},
		"they outlive the interrupt": {script: `trap "exit 5" INT; echo ready >&2; while :; do sleep 0.01; done`, algorithm: errors.New("stop"), want: "stop"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var output bytes.Buffer
			c := ClientServer{
				Processes: 2, Command: []string{"/bin/sh", "-c", test.script}, AllowedExitCodes: test.allowed,
				Stdout: &output, Stderr: &output, GracefulTimeout: 50 * time.Millisecond,
			}
			freePort(&c)
			c.Token = "secret"
			err := c.Execute(t.Context(), Parts{
				Runners: 4, Runner: drained, OpenStore: openMemory,
				Algorithm: func(ctx context.Context, _ agl.Store) error {
					if test.algorithm == nil && test.want != "" {
						<-ctx.Done() // the runners' failure ends it
					}
					return test.algorithm
				},
			})
			switch {
			case test.want == "" && err != nil:
				t.Errorf("error %v; output: %s", err, &output)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestClientServerPassesOutputOn(t *testing.T) {
	t.Parallel()
	var stdout, stderr bytes.Buffer
	c := ClientServer{Command: []string{"/bin/sh", "-c", "echo out; echo err >&2"}, Stdout: &stdout, Stderr: &stderr}
	freePort(&c)
	if err := c.Execute(t.Context(), Parts{Runner: drained, OpenStore: openMemory}); err != nil {
		t.Fatal(err)
	}
	if stdout.String() != "out\n" || stderr.String() != "err\n" {
		t.Errorf("output %q and %q", &stdout, &stderr)
	}
}

func TestClientServerCannotStart(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := taken.Close(); err != nil {
			t.Error(err)
		}
	})
	takenPort := taken.Addr().(*net.TCPAddr).Port
	tests := map[string]struct {
		change func(*ClientServer)
		parts  func(*Parts)
		want   string
	}{
		"the port is taken": {
			change: func(c *ClientServer) { c.AnyPort, c.Port = false, takenPort },
			want:   "address already in use; choose another by " + EnvServerPort,
		},
		"the store does not answer": {
			change: func(c *ClientServer) { c.StoreURL, c.ConnectTimeout = "http://127.0.0.1:1", 50*time.Millisecond },
			want:   "reach the store server",
		},
		"the program is gone": {
			change: func(c *ClientServer) { c.Command = []string{"/no/such/program"} },
			want:   "runner process 0: start: fork/exec /no/such/program",
		},
		"the lifeline is not open": {
			change: func(c *ClientServer) { c.LifelineFD = 987 },
			want:   EnvLifeline + ": descriptor 987",
		},
		"main is neither of both": {
			change: func(c *ClientServer) { c.Main = RoleBoth },
			want:   `main: got "both", must be algorithm or runner`,
		},
		"processes are negative": {
			change: func(c *ClientServer) { c.Processes = -1 },
			want:   "processes: got -1",
		},
		"the store does not open": {
			parts: func(p *Parts) {
				p.OpenStore = func(context.Context) (OpenedStore, error) { return OpenedStore{}, errors.New("disk full") }
			},
			want: "open the store: disk full",
		},
		"the setup fails": {
			parts: func(p *Parts) {
				p.Setup = func(context.Context, agl.Store) (func(context.Context) error, error) {
					return nil, errors.New("no proxy")
				}
			},
			want: "set up: no proxy",
		},
		"there is no algorithm to play": {
			change: func(c *ClientServer) { c.Role = RoleAlgorithm },
			want:   "no algorithm given",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var c ClientServer
			freePort(&c)
			c.Command = []string{"/bin/sh", "-c", "exit 0"}
			parts := Parts{Runner: drained, OpenStore: openMemory}
			if test.change != nil {
				test.change(&c)
			}
			if test.parts != nil {
				test.parts(&parts)
			}
			err := c.Execute(t.Context(), parts)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
			if c.Port == takenPort {
				return
			}
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			c.Listener = listener
			if err := c.Execute(t.Context(), parts); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("with a listener: error %v, want one with %q", err, test.want)
			}
			if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
				t.Errorf("the listener was not closed: %v", err)
			}
		})
	}
}

// TestClientServerRefusesToBreed: a child that was not told its role by the
// environment must not start children of its own.
func TestClientServerRefusesToBreed(t *testing.T) {
	t.Setenv(EnvLifeline, "3")
	var c ClientServer
	freePort(&c)
	err := c.Execute(t.Context(), Parts{Runner: drained, OpenStore: openMemory})
	if !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), "ConfigFromEnv") {
		t.Errorf("error %v, want ErrIllegalState that names ConfigFromEnv", err)
	}
}

func TestTokenIsAsked(t *testing.T) {
	t.Parallel()
	url, refused := make(chan string, 1), make(chan struct{})
	leader := ClientServer{Listening: func(u string) { url <- u }}
	freePort(&leader)
	leader.Role, leader.Token = RoleAlgorithm, "secret"
	ended := make(chan error, 1)
	go func() {
		ended <- leader.Execute(t.Context(), Parts{
			OpenStore: openMemory,
			Algorithm: func(ctx context.Context, s agl.Store) error {
				<-refused
				rollouts, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 1)})
				if err != nil {
					return err
				}
				_, err = s.WaitForRollouts(ctx, agl.WaitForRolloutsParams{RolloutIDs: []string{rollouts[0].RolloutID}})
				return err
			},
		})
	}()
	follower := ClientServer{Config: Config{Role: RoleRunner, StoreURL: <-url, Token: "guess"}}
	if err := follower.Execute(t.Context(), Parts{Runner: served}); !errors.Is(err, agl.ErrUnauthorized) {
		t.Errorf("with a wrong token: error %v, want ErrUnauthorized", err)
	}
	close(refused)
	follower.Token = "secret"
	if err := follower.Execute(t.Context(), Parts{Runner: served}); err != nil {
		t.Errorf("with the token: %v", err)
	}
	if err := <-ended; err != nil {
		t.Errorf("algorithm: %v", err)
	}
}

// served is a runner that finishes what it gets at once.
func served(ctx context.Context, s agl.Store, _ int) error {
	for {
		res, err := s.DequeueRollouts(ctx, agl.DequeueRolloutsParams{Limit: 1, Wait: time.Minute, WorkerID: agl.Some("w")})
		if err != nil || res.Closed {
			return err
		}
		status := agl.AttemptSucceeded
		for _, r := range res.Rollouts {
			p := agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status}
			if _, err := s.UpdateAttempt(ctx, p); err != nil {
				return err
			}
		}
	}
}

func TestSetupOutlivesTheRunners(t *testing.T) {
	t.Parallel()
	strategies := map[string]func() Strategy{
		"shared memory": func() Strategy { return SharedMemory{} },
		"client-server": func() Strategy {
			c := ClientServer{Main: RoleRunner}
			freePort(&c)
			c.Main, c.Command = RoleAlgorithm, []string{"/bin/sh", "-c", "exit 0"}
			return c
		},
	}
	for name, strategy := range strategies {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var order []string
			err := strategy().Execute(t.Context(), Parts{
				OpenStore: openMemory,
				Runner:    drained,
				Setup: func(context.Context, agl.Store) (func(context.Context) error, error) {
					order = append(order, "set up")
					return func(context.Context) error {
						order = append(order, "torn down")
						return errors.New("not clean")
					}, nil
				},
				Algorithm: func(context.Context, agl.Store) error {
					order = append(order, "algorithm")
					return nil
				},
			})
			if err == nil || !strings.Contains(err.Error(), "tear down: not clean") {
				t.Errorf("error %v, want that of the teardown", err)
			}
			if got := strings.Join(order, ", "); got != "set up, algorithm, torn down" {
				t.Errorf("order: %s", got)
			}
		})
	}
}

func TestExitCode(t *testing.T) {
	t.Parallel()
	if got := ExitCode(nil); got != 0 {
		t.Errorf("of nil: %d", got)
	}
	if got := ExitCode(errors.New("x")); got != 1 {
		t.Errorf("of a failure: %d", got)
	}
}
