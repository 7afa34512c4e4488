package chaos

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"
)

// longest bounds every wait for something that must happen; it is reached only
// by a failure.
const longest = 60 * time.Second

// server is an agl store at an address of its own, alive or not.
type server struct {
	t    *testing.T
	name string
	port int
	args []string
	log  string // the file that its standard error goes to
	cmd  *exec.Cmd
}

// newServer starts `agl store args…`.
func newServer(t *testing.T, name, dir string, args ...string) *server {
	t.Helper()
	s := &server{t: t, name: name, log: filepath.Join(dir, name+".log"), port: freePort(t)}
	s.args = append([]string{"store", "--port", strconv.Itoa(s.port), "--log-level", "warn"}, args...)
	t.Cleanup(s.kill)
	s.start()
	return s
}

func freePort(t *testing.T) int {
	t.Helper()
	var config net.ListenConfig
	l, err := config.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (s *server) url() string { return "http://" + s.address() }

func (s *server) address() string { return "127.0.0.1:" + strconv.Itoa(s.port) }

// start starts the process and waits until it serves.
func (s *server) start() {
	s.t.Helper()
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	defer log.Close()
	s.cmd = exec.Command(aglBinary, s.args...)
	s.cmd.Stderr = log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	if err := s.await(); err != nil {
		s.t.Fatalf("%s does not serve: %v; see %s", s.name, err, s.log)
	}
}

func (s *server) await() error {
	ctx, cancel := context.WithTimeout(s.t.Context(), longest)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url()+"/v1/agl/health", http.NoBody)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(req)
		if err == nil {
			status := answer.StatusCode
			if err = answer.Body.Close(); err == nil && status == http.StatusOK {
				return nil
			}
			err = errors.Join(err, fmt.Errorf("status %d", status))
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}

// kill ends the process as a crash does.
func (s *server) kill() {
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Kill(); err != nil && !errors.Is(err, os.ErrProcessDone) {
		s.t.Error(err)
	}
	// That it was killed is known.
	_ = s.cmd.Wait()
	s.cmd = nil
}
