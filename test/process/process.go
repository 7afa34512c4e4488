// Package process runs the real agl command for suites that kill it. It builds the program, starts store servers that keep
// their address when they are killed and started again, and ends them with the test. It searches what they leave for secrets.
//
//	func TestMain(m *testing.M) { os.Exit(process.Main(m, &binary)) }
//
//	server := process.Store(t, binary, "store", process.Dir(t), "--db", "sqlite:"+file)
//	server.Kill()
//	server.Start()
//
// It must not know what is stored, nor what a suite tests.
package process

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/agl-go/agl/internal/httpserver"
)

// longest bounds how long a server may take to start. It is reached only by a failure.
const longest = 3 * time.Minute

// Build builds the agl command into a directory, static as make build does, and returns its file.
func Build(dir string) (string, error) {
	file := filepath.Join(dir, "agl")
	build := exec.Command("go", "build", "-o", file, "github.com/agl-go/agl/cmd/agl") //nolint:noctx // go test bounds it
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build agl: %w\n%s", err, out)
	}
	return file, nil
}

// Main runs a package's tests with the agl command, whose file it puts into binary. It returns the exit code.
func Main(m *testing.M, binary *string) (code int) {
	dir, err := os.MkdirTemp("", "agl-test-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	// A test may run the program as another user.
	if err := os.Chmod(dir, 0o755); err != nil { //nolint:gosec // nothing secret is in it
		panic(err)
	}
	if *binary, err = Build(dir); err != nil {
		panic(err)
	}
	if err := os.Setenv(secretVariable, Canary); err != nil {
		panic(err)
	}
	return m.Run()
}

// Server is a store server with a fixed address, which may be running or not.
type Server struct {
	Name string
	Log  string // the file that its standard error is appended to

	tb     testing.TB
	binary string
	who    *User
	args   []string
	port   int
	cmd    *exec.Cmd     // nil when there is no process
	exited chan struct{} // closed when it has ended
}

// Store starts `agl store args…` with a log in dir, to be killed at the end of the test.
func Store(tb testing.TB, binary, name, dir string, args ...string) *Server {
	tb.Helper()
	return StoreAs(tb, nil, binary, name, dir, args...)
}

// StoreAs is Store, run as another user unless who is nil.
func StoreAs(tb testing.TB, who *User, binary, name, dir string, args ...string) *Server {
	tb.Helper()
	s := &Server{Name: name, Log: filepath.Join(dir, name+".log"), tb: tb, binary: binary, who: who, port: FreePort(tb)}
	s.args = append([]string{"store", "--port", strconv.Itoa(s.port), "--log-level", "warn"}, args...)
	tb.Cleanup(s.Kill)
	s.Start()
	return s
}

// FreePort returns a port of the loopback interface that is free.
func FreePort(tb testing.TB) int {
	tb.Helper()
	port, err := httpserver.FreePort(tb.Context())
	if err != nil {
		tb.Fatal(err)
	}
	return port
}

// Address returns the server's host and port.
func (s *Server) Address() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// URL returns the server's URL.
func (s *Server) URL() string { return "http://" + s.Address() }

// PID returns the id of the process, or 0 if there is none.
func (s *Server) PID() int {
	if s.cmd == nil {
		return 0
	}
	return s.cmd.Process.Pid
}

// Start starts the process and waits until it serves.
func (s *Server) Start() {
	s.tb.Helper()
	log, err := os.OpenFile(s.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.tb.Fatal(err)
	}
	s.cmd = exec.Command(s.binary, s.args...) //nolint:noctx // it is ended by a signal
	s.cmd.Stderr = log
	ownGroup(s.cmd, s.who)
	if err := errors.Join(s.cmd.Start(), log.Close()); err != nil {
		s.tb.Fatal(err)
	}
	s.exited = make(chan struct{})
	ctx, cancel := context.WithCancelCause(s.tb.Context())
	timed, stop := context.WithTimeout(ctx, longest)
	go func(cmd *exec.Cmd, exited chan struct{}) {
		defer close(exited)
		_ = cmd.Wait() // any end is fine
		cancel(errors.New("it has ended"))
		stop()
	}(s.cmd, s.exited)
	if err := httpserver.Await(timed, s.URL()+"/v1/agl/health"); err != nil {
		said, _ := os.ReadFile(s.Log)
		s.tb.Fatalf("%s does not serve: %v\n%s", s.Name, err, said)
	}
}

// Kill ends the process with SIGKILL, like a crash.
func (s *Server) Kill() { s.end(syscall.SIGKILL) }

// Stop ends the process with SIGTERM.
func (s *Server) Stop() { s.end(syscall.SIGTERM) }

func (s *Server) end(signal syscall.Signal) {
	s.tb.Helper()
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Signal(signal); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.tb.Error(err)
	}
	select {
	case <-s.exited:
	case <-time.After(longest):
		s.tb.Errorf("%s does not end", s.Name)
		_ = s.cmd.Process.Kill()
		<-s.exited
	}
	s.cmd = nil
}
