package postgrestest

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/agl-go/agl/internal/httpserver"
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
	port, err := httpserver.FreePort(ctx)
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
	at := &url.URL{Scheme: "postgres", User: s.base.User, Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/postgres", RawQuery: "sslmode=disable"}
	pooler := &process{command: []string{"pgbouncer", config}, dir: dir, owner: owner, log: s.config.Logger}
	tb.Cleanup(func() {
		if err := pooler.stop(context.WithoutCancel(ctx), os.Kill); err != nil {
			tb.Error(err)
		}
	})
	return at, pooler.start(ctx, at.String())
}
