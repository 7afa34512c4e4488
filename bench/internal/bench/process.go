package bench

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl/internal/httpserver"
)

// Process is a server in a process of its own. It ends when this process ends.
type Process struct {
	URL string
	// Ready is the time from the start of the process to its first answer.
	Ready time.Duration

	cmd *exec.Cmd
}

func newCommand(ctx context.Context, env []string, command string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, command, args...)
	cmd.Env = append(os.Environ(), env...)
	ownGroup(cmd)
	return cmd
}

// Start runs `command args --host 127.0.0.1 --port N` and waits until a path, such as /health, answers 200.
func Start(ctx context.Context, path string, env []string, command string, args ...string) (*Process, error) {
	port, err := httpserver.FreePort(ctx)
	if err != nil {
		return nil, err
	}
	cmd := newCommand(ctx, env, command, append(args, "--host", "127.0.0.1", "--port", strconv.Itoa(port))...)
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{URL: fmt.Sprintf("http://127.0.0.1:%d", port), cmd: cmd}
	const longest = 2 * time.Minute
	waiting, cancel := context.WithTimeout(ctx, longest)
	defer cancel()
	if err := httpserver.Await(waiting, p.URL+path); err != nil {
		p.Stop()
		return nil, fmt.Errorf("%s does not serve: %w\n%s", command, err, output.String())
	}
	p.Ready = time.Since(began)
	return p, nil
}

const roleEnv = "AGL_BENCH_ROLE"

// Play plays the role in which [StartRole] has started this process, and ends the process. It does nothing in a process without a role.
func Play(name string, roles map[string]func(args []string) error) {
	if role := os.Getenv(roleEnv); role != "" {
		Exit(name, roles[role](os.Args[1:]))
		os.Exit(0)
	}
}

// StartRole starts this program in a role, which [Play] plays by a call of [Serve].
func StartRole(ctx context.Context, role string, args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := newCommand(ctx, []string{roleEnv + "=" + role}, self, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		p.Stop()
		return nil, fmt.Errorf("%s: %w", role, err)
	}
	p.URL = "http://" + strings.TrimSpace(line)
	return p, nil
}

// Serve serves at a free port until the process is killed.
func Serve(h http.Handler) error {
	var config net.ListenConfig
	l, err := config.Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(l.Addr())
	return (&http.Server{Handler: h, ReadHeaderTimeout: time.Minute, IdleTimeout: 2 * time.Minute}).Serve(l)
}

// ServeReverse is [Serve] with a bare reverse proxy of a URL, which gateways are compared with.
func ServeReverse(backend string) error {
	target, err := url.Parse(backend)
	if err != nil {
		return err
	}
	bare := httputil.NewSingleHostReverseProxy(target)
	bare.Transport = &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	return Serve(bare)
}

// Stop kills the process and its children and returns the CPU time that they used.
func (p *Process) Stop() time.Duration {
	killGroup(p.cmd.Process)
	_ = p.cmd.Wait() // that it was killed is no error
	return p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
}

// CPU returns the CPU time of the process so far.
func (p *Process) CPU() (time.Duration, error) { return processCPU(p.cmd.Process.Pid) }

// Memory returns the resident memory of the process in bytes: the current one (VmRSS) or the peak (VmHWM).
func (p *Process) Memory(field string) (int64, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	_, rest, found := strings.Cut(string(status), field+":")
	if !found {
		return 0, fmt.Errorf("/proc/%d/status has no %s", p.cmd.Process.Pid, field)
	}
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	return kib << 10, err
}
