package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/http/pprof"
	"net/url"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest"
)

// roleEnv makes this program one of the processes of the benchmark.
const (
	roleEnv    = "AGL_BENCH_ROLE"
	backendEnv = "AGL_BENCH_BACKEND"
	storeEnv   = "AGL_BENCH_STORE"
)

// serve serves until the process is told to end.
func serve(listen string, h http.Handler) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", listen)
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		_ = server.Close()
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

// serveReverse is the bare reverse proxy.
func serveReverse(listen string) error {
	target, err := url.Parse(os.Getenv(backendEnv))
	if err != nil {
		return err
	}
	bare := httputil.NewSingleHostReverseProxy(target)
	bare.Transport = &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	return serve(listen, bare)
}

// serveAgl is the gateway with a store behind it.
func serveAgl(listen string) (err error) {
	debug.SetGCPercent(400) // as agl proxy does
	store, err := rest.NewClient(rest.ClientConfig{URL: os.Getenv(storeEnv), RetryBudget: -1})
	if err != nil {
		return err
	}
	p, err := proxy.New(proxy.Config{
		Models: []proxy.Model{{Name: "m", BaseURL: os.Getenv(backendEnv) + "/v1"}}, Spans: store, SpoolDir: os.Getenv("AGL_BENCH_SPOOL"),
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+profilePath, pprof.Profile)
	mux.Handle("/", p)
	err = serve(listen, mux)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	return errors.Join(err, p.Close(ctx), store.Close())
}

// profilePath is where the gateway's CPU profile is had.
const profilePath = "/debug/pprof/profile"

// profile begins to profile a process for a time; what it returns waits for the
// file.
func profile(ctx context.Context, c *child, file string, span time.Duration) (wait func() error) {
	done := make(chan error, 1)
	go func() {
		done <- func() (err error) {
			url := c.url + profilePath + "?seconds=" + strconv.Itoa(max(int(span.Seconds()), 1))
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
			if err != nil {
				return err
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				return fmt.Errorf("profile: %s", res.Status)
			}
			f, err := os.Create(file)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			_, err = io.Copy(f, res.Body)
			return err
		}()
	}()
	return func() error { return <-done }
}

// dieWithUs ends the servers of a benchmark that is killed.
var dieWithUs = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}

// child is a process of the benchmark.
type child struct {
	cmd *exec.Cmd
	url string
}

// start starts this program in a role.
func start(ctx context.Context, role string, env ...string) (*child, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(append(os.Environ(), roleEnv+"="+role), env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = dieWithUs
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", role, err), cmd.Process.Kill(), cmd.Wait())
	}
	return &child{cmd, "http://" + strings.TrimSpace(line)}, nil
}

// startCommand starts a server that takes --port, and waits until path answers.
func startCommand(ctx context.Context, path string, env []string, command string, args ...string) (*child, error) {
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	port := strconv.Itoa(l.Addr().(*net.TCPAddr).Port)
	if err := l.Close(); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, command, append(args, "--host", "127.0.0.1", "--port", port)...)
	cmd.Env = append(os.Environ(), env...)
	cmd.SysProcAttr = dieWithUs
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd, "http://127.0.0.1:" + port}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	for tick := time.NewTicker(20 * time.Millisecond); ; {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, http.NoBody)
		if err != nil {
			return nil, err
		}
		if res, err := http.DefaultClient.Do(req); err == nil {
			res.Body.Close()
			if res.StatusCode == http.StatusOK {
				return c, nil
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			c.stop()
			return nil, fmt.Errorf("%s does not serve: %w\n%s", command, ctx.Err(), output.String())
		}
	}
}

// stop ends the process.
func (c *child) stop() {
	_ = c.cmd.Process.Signal(syscall.SIGTERM)
	_ = c.cmd.Wait()
}

// clockTick is the unit of times in /proc on Linux (USER_HZ).
const clockTick = 10 * time.Millisecond

// cpu returns the time that the process has spent on a CPU so far.
func (c *child) cpu() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The name before the last parenthesis may hold anything.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	const user, system = 11, 12
	total := int64(0)
	for _, i := range [...]int{user, system} {
		ticks, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, err
		}
		total += ticks
	}
	return time.Duration(total) * clockTick, nil
}

// memory returns the process's resident memory in bytes.
func (c *child) memory() (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", c.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	return kib << 10, err
}
