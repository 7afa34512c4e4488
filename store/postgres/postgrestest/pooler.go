package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl/internal/backoff"
)

// StartPooler starts PgBouncer in front of a server until the test ends and returns the URL of a database by way of it. Mode is
// its pool_mode. A test is skipped where PgBouncer is not installed.
func (s *Server) StartPooler(tb testing.TB, mode string) (databaseURL func(database string) string) {
	tb.Helper()
	if _, err := exec.LookPath("pgbouncer"); err != nil {
		tb.Skip("pgbouncer is not installed")
	}
	dir, err := os.MkdirTemp("", "agl-pgbouncer-") //nolint:usetesting // another user must get into the folder
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			tb.Error(err)
		}
	})
	for try := 0; ; try++ {
		at, err := s.startPooler(tb, dir, mode)
		if err == nil {
			return func(database string) string {
				u := *at
				u.Path = "/" + database
				return u.String()
			}
		}
		if try == 2 { // another process may have taken the port
			tb.Fatal(err)
		}
	}
}

func (s *Server) startPooler(tb testing.TB, dir, mode string) (*url.URL, error) {
	tb.Helper()
	ctx := tb.Context()
	owner, err := unprivileged()
	if err != nil {
		return nil, err
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	password, _ := s.base.User.Password()
	config := filepath.Join(dir, "pgbouncer.ini")
	text := fmt.Sprintf(`[databases]
* = host=%s port=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %d
unix_socket_dir =
auth_type = any
pool_mode = %s
`, s.base.Hostname(), s.base.Port(), s.base.User.Username(), password, port, mode)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return nil, err
	}
	if err := owner.own(dir, config); err != nil {
		return nil, err
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command("pgbouncer", config) //nolint:noctx // it is ended below
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, log, log
	owner.become(cmd)
	dieWithParent(cmd)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	exited := make(chan struct{})
	go func() {
		_ = cmd.Wait() // it is killed
		close(exited)
	}()
	tb.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		<-exited
	})
	at := &url.URL{Scheme: "postgres", User: s.base.User, Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/postgres", RawQuery: "sslmode=disable"}
	return at, awaitPooler(ctx, at.String(), log.Name(), exited)
}

// awaitPooler returns when a pooler takes connections.
func awaitPooler(ctx context.Context, url, log string, exited <-chan struct{}) error {
	for {
		conn, err := pgx.Connect(ctx, url)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case <-exited:
			said, readErr := os.ReadFile(log)
			return errors.Join(fmt.Errorf("pgbouncer ended while it started: %s", said), readErr)
		default:
		}
		if err := backoff.Sleep(ctx, startPoll); err != nil {
			return fmt.Errorf("pgbouncer does not answer: %w", err)
		}
	}
}
