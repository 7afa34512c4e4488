//go:build unix

package e2e

import (
	"bufio"
	"bytes"
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/agl-go/agl/test/process"
)

// longest bounds every wait of a test. It is reached only by a failure.
const longest = 3 * time.Minute

// started is a process that a test has started, in a process group of its own
// as a terminal's foreground job has.
type started struct {
	t      *testing.T
	cmd    *exec.Cmd
	lines  chan string   // of its standard output and that of its children
	eof    chan struct{} // closed when nobody holds its standard output open
	exited chan struct{}
	stderr *lockedBuffer
	seen   map[string][]string // details of the lines read so far, by their first word
}

// lockedBuffer collects output that is read while it grows.
type lockedBuffer struct {
	mu   sync.Mutex
	buf  bytes.Buffer
	news chan struct{} // capacity 1; signals new output
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	select {
	case b.news <- struct{}{}:
	default:
	}
	return b.buf.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buf.String()
}

// start runs a command. Its standard output is a pipe that its children inherit, so that the
// end of the pipe proves that none of them remains.
func start(t *testing.T, path string, args, env []string) *started {
	t.Helper()
	return startAs(t, path, args, env, false)
}

// startMerged is start with standard error in the same pipe.
func startMerged(t *testing.T, path string, args, env []string) *started {
	t.Helper()
	return startAs(t, path, args, env, true)
}

func startAs(t *testing.T, path string, args, env []string, merged bool) *started {
	t.Helper()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	s := &started{
		t: t, cmd: exec.Command(path, args...),
		lines: make(chan string, 1<<16), eof: make(chan struct{}), exited: make(chan struct{}),
		stderr: &lockedBuffer{news: make(chan struct{}, 1)}, seen: map[string][]string{},
	}
	s.cmd.Env = append(os.Environ(), env...)
	s.cmd.Stdout, s.cmd.Stderr = write, s.stderr
	if merged {
		s.cmd.Stderr = write
	}
	s.cmd.WaitDelay = longest
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := write.Close(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(s.eof)
		defer close(s.lines)
		scanner := bufio.NewScanner(read)
		for scanner.Scan() {
			process.Silent(t, path, scanner.Bytes())
			s.lines <- scanner.Text()
		}
	}()
	go func() {
		defer close(s.exited)
		// The exit code is read from the state; the error says no more.
		_ = s.cmd.Wait()
	}()
	t.Cleanup(func() {
		select {
		case <-s.exited: // another process may have its id by now
		default:
			s.signalGroup(syscall.SIGKILL)
			<-s.exited
		}
		if t.Failed() {
			t.Logf("standard error of %v:\n%s", s.cmd.Args, s.stderr)
		}
		<-s.eof
		process.Silent(t, "standard error of "+path, []byte(s.stderr.String()))
		if err := read.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// startProgram starts the training program.
func startProgram(t *testing.T, env []string, args ...string) *started {
	t.Helper()
	path, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return start(t, path, args, append([]string{envProgram + "=1"}, env...))
}

// next reads one line; ok is false at the end of the output.
func (s *started) next(deadline <-chan time.Time, waitingFor string) (what, detail string, ok bool) {
	s.t.Helper()
	select {
	case line, open := <-s.lines:
		if !open {
			return "", "", false
		}
		what, detail, _ := strings.Cut(line, " ")
		s.seen[what] = append(s.seen[what], detail)
		return what, detail, true
	case <-deadline:
		s.t.Fatalf("waited %s for %s", longest, waitingFor)
		return "", "", false
	}
}

// await reads until there are n lines that begin with what, and returns their details.
func (s *started) await(what string, n int) []string {
	s.t.Helper()
	deadline := time.After(longest)
	for len(s.seen[what]) < n {
		if _, _, ok := s.next(deadline, what); !ok {
			s.t.Fatalf("the program ended before it had said %q %d times; it said %v", what, n, s.seen)
		}
	}
	return s.seen[what]
}

// signalGroup sends a signal to the process group, as a terminal does at Ctrl-C.
func (s *started) signalGroup(sig syscall.Signal) {
	if err := syscall.Kill(-s.cmd.Process.Pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
		s.t.Error(err)
	}
}

func signal(t *testing.T, pid int, sig syscall.Signal) {
	t.Helper()
	if err := syscall.Kill(pid, sig); err != nil {
		t.Fatal(err)
	}
}

// end waits for the process and everything that it started, and returns its
// exit code, minus the signal's number if one ended it.
func (s *started) end() int {
	s.t.Helper()
	deadline := time.After(longest)
	for {
		if _, _, ok := s.next(deadline, "the end of every process that the program started"); !ok {
			break
		}
	}
	select {
	case <-s.exited:
	case <-deadline:
		s.t.Fatalf("waited %s for the program to end", longest)
	}
	status, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus)
	if ok && status.Signaled() {
		return -int(status.Signal())
	}
	return s.cmd.ProcessState.ExitCode()
}
