package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// server is a store that answers at urls until stop, which returns the CPU time
// that its processes used.
type server struct {
	urls  []string
	pid   int // when it is one process
	stop  func() time.Duration
	ready time.Duration // from the start of its process to its first answer
}

func freePort(ctx context.Context) (int, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// startProcess runs `command args --host 127.0.0.1 --port N` and waits until
// it is healthy.
func startProcess(ctx context.Context, env []string, command string, args ...string) (*server, error) {
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	args = append(args, "--host", "127.0.0.1", "--port", strconv.Itoa(port))
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env = append(os.Environ(), env...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	s := &server{urls: []string{fmt.Sprintf("http://127.0.0.1:%d", port)}, pid: cmd.Process.Pid}
	s.stop = func() time.Duration {
		// The Python server has children; the group is ours alone.
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
	}
	if err := waitHealthy(ctx, s.urls[0]); err != nil {
		s.stop()
		return nil, fmt.Errorf("%s did not become healthy: %w\n%s", command, err, output.String())
	}
	s.ready = time.Since(began)
	return s, nil
}

// healthPoll is how exactly a cold start is measured.
const healthPoll = time.Millisecond

func waitHealthy(ctx context.Context, url string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	tick := time.NewTicker(healthPoll)
	defer tick.Stop()
	for {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/v1/agl/health", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			if err := resp.Body.Close(); err != nil {
				return err
			}
			if resp.StatusCode == http.StatusOK {
				return nil
			}
			err = errors.New(resp.Status)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), err)
		case <-tick.C:
		}
	}
}
