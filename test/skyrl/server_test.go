//go:build skyrl

package skyrl_test

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/agl-go/agl/test/process"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/engines"
)

func environment(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run make skyrl", name)
	}
	return v
}

// server is a SkyRL server with its engine, and the folder where its database and checkpoints are.
type server struct {
	url    string
	port   int
	state  string
	shards int // devices that the model and its optimizer are sharded over
	log    *os.File
	cmd    *exec.Cmd
}

// start starts a server on an empty folder. It ends with the test; what it printed is shown if that failed.
func start(t *testing.T) *server {
	t.Helper()
	return startSharded(t, 1)
}

func startSharded(t *testing.T, shards int) *server {
	t.Helper()
	s := &server{port: process.FreePort(t), state: t.TempDir(), shards: shards}
	s.url = fmt.Sprintf("http://127.0.0.1:%d", s.port)
	var err error
	if s.log, err = os.Create(filepath.Join(t.TempDir(), "server.log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if s.cmd != nil && s.cmd.Process != nil { // it runs
			s.kill(t)
		}
		if t.Failed() {
			s.show(t)
		}
		if err := s.log.Close(); err != nil {
			t.Error(err)
		}
	})
	s.restart(t)
	return s
}

// restart starts the server again where it was, and waits until it listens.
func (s *server) restart(t *testing.T) {
	t.Helper()
	// Not ended by the test's context: the cleanup waits for the whole group.
	s.cmd = exec.Command(filepath.Join(environment(t, "AGL_SKYRL_VENV"), "bin", "python"), "serve.py",
		environment(t, "AGL_SKYRL_MODEL"), s.state, fmt.Sprint(s.port), fmt.Sprint(s.shards))
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	// A client repeats its first request until there is an answer.
	if _, err := s.connect(t).Capabilities(t.Context()); err != nil {
		s.show(t)
		t.Fatal(err)
	}
}

// kill ends the server and its engine at once.
func (s *server) kill(t *testing.T) {
	t.Helper()
	if err := syscall.Kill(-s.cmd.Process.Pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		t.Error(err)
	}
	if _, ok := errors.AsType[*exec.ExitError](s.cmd.Wait()); !ok {
		t.Error("the server ended by itself")
	}
	s.cmd = nil
}

// show logs the end of what the server printed.
func (s *server) show(t *testing.T) {
	t.Helper()
	const most = 8 << 10
	data, err := os.ReadFile(s.log.Name())
	if err != nil {
		t.Error(err)
		return
	}
	t.Logf("server:\n%s", data[max(0, len(data)-most):])
}

// The dimensions of the tiny model; see model.py.
const (
	vocab      = 307
	contextLen = 512
)

// capabilities returns the capabilities of SkyRL's JAX backend, with the sizes of the test's model.
func capabilities(t *testing.T) *engines.Engine {
	t.Helper()
	e, err := engines.Find(engines.SkyRLJAX)
	if err != nil {
		t.Fatal(err)
	}
	e.Vocab, e.Context = vocab, contextLen
	return &e
}

// connect returns a client of the server.
func (s *server) connect(t *testing.T) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{URL: s.url, Engine: capabilities(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, c) })
	return c
}

func closed(t *testing.T, c io.Closer) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}
