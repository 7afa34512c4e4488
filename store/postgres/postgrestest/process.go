package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl/internal/backoff"
)

// process is the main process of a server, or of a pooler.
type process struct {
	command []string
	dir     string
	owner   owner
	log     *slog.Logger

	cmd    *exec.Cmd
	exited chan struct{} // closed when cmd has ended
}

// usualPlaces returns where the packages of operating systems put the server's programs.
func usualPlaces() []string {
	return []string{
		"/usr/lib/postgresql/*/bin/initdb", "/usr/pgsql-*/bin/initdb", "/usr/local/pgsql/bin/initdb",
		"/opt/homebrew/opt/postgresql*/bin/initdb", "/usr/local/opt/postgresql*/bin/initdb",
	}
}

// binaries finds the directory of the server's programs: on PATH, or the newest
// version in the usual places.
func binaries(places []string) (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	var found []string
	for _, pattern := range places {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			return "", err
		}
		found = append(found, paths...)
	}
	if len(found) == 0 {
		return "", errors.New("no PostgreSQL server is installed: run `apt-get install postgresql`, " +
			"or set " + URLVariable + " to the URL of a server whose user may create databases")
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })), nil
}

// version returns the first number in a path, or 0 if there is none.
func version(path string) int {
	digits := strings.TrimLeftFunc(path, func(r rune) bool { return r < '0' || r > '9' })
	end := strings.IndexFunc(digits, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		return 0
	}
	n, err := strconv.Atoi(digits[:end])
	if err != nil {
		return 0
	}
	return n
}

func (p *process) name() string { return filepath.Base(p.command[0]) }

func (p *process) pid() int {
	if p == nil || p.cmd == nil {
		return 0
	}
	return p.cmd.Process.Pid
}

// startPoll is the interval at which a starting server is asked whether it is ready.
const startPoll = 20 * time.Millisecond

// start runs the server and waits until it answers. After a SIGKILL the backends of the
// old server may still hold the data; start then tries again.
func (p *process) start(ctx context.Context, url string) error {
	for {
		err := p.startOnce(ctx, url)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "pre-existing shared memory block") {
			return err
		}
		if err := backoff.Sleep(ctx, startPoll); err != nil {
			return err
		}
	}
}

func (p *process) startOnce(ctx context.Context, url string) error {
	if p.cmd != nil {
		return errors.New("the server is running already")
	}
	log, err := os.OpenFile(filepath.Join(p.dir, "log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	from, err := log.Seek(0, 2)
	if err != nil {
		return err
	}
	cmd := exec.Command(p.command[0], p.command[1:]...) //nolint:noctx // it outlives the call that starts it
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	p.owner.become(cmd)
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.exited = cmd, make(chan struct{})
	go func() {
		// stop and start check only that it ended; the log says how.
		_ = cmd.Wait()
		close(p.exited)
	}()
	p.log.InfoContext(ctx, "started", "program", p.name(), "pid", cmd.Process.Pid)
	if err := p.awaitReady(ctx, url); err != nil {
		return errors.Join(err, p.stop(ctx, os.Kill), p.said(from))
	}
	return nil
}

// awaitReady returns when the server answers queries.
func (p *process) awaitReady(ctx context.Context, url string) error {
	for {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-p.exited:
			return errors.New(p.name() + " ended while it started")
		default:
		}
		if err := backoff.Sleep(ctx, startPoll); err != nil {
			return fmt.Errorf("%s does not answer: %w", p.name(), err)
		}
	}
}

// said returns what the server has logged since an offset, as an error.
func (p *process) said(from int64) error {
	log, err := os.ReadFile(filepath.Join(p.dir, "log"))
	if err != nil {
		return err
	}
	return fmt.Errorf("its log says:\n%s", log[min(from, int64(len(log))):])
}

// stop ends the server by a signal and waits for its end. It does nothing if the server
// does not run.
func (p *process) stop(ctx context.Context, sig os.Signal) error {
	if p == nil || p.cmd == nil {
		return nil
	}
	if err := p.cmd.Process.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.exited:
		p.log.InfoContext(ctx, "ended", "program", p.name(), "pid", p.cmd.Process.Pid, "signal", sig.String())
		p.cmd = nil
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%s did not end on %s: %w", p.name(), sig, ctx.Err())
	}
}
