package postgrestest_test

import (
	"context"
	"os"
	"testing"

	"github.com/agl-go/agl/store/postgres/postgrestest"
	"github.com/jackc/pgx/v5"
)

// TestRestarts checks that what was committed is there after a stop and after a
// crash, under the same URL, and that nothing is left behind in the end.
func TestRestarts(t *testing.T) {
	t.Parallel()
	if os.Getenv(postgrestest.URLVariable) != "" {
		t.Skip("the server is not ours to stop")
	}
	ctx := t.Context()
	server, err := postgrestest.Start(ctx, postgrestest.Config{Durable: true, Template: func(ctx context.Context, url string) error {
		return run(ctx, url, `CREATE TABLE t (n int)`)
	}})
	if err != nil {
		t.Fatal(err)
	}
	closed := false
	defer func() {
		if !closed {
			if err := server.Close(context.WithoutCancel(ctx)); err != nil {
				t.Error(err)
			}
		}
	}()
	url, err := server.NewDatabase(ctx)
	if err != nil {
		t.Fatal(err)
	}
	for i, end := range []func(context.Context) error{server.Stop, server.Kill} {
		if err := run(ctx, url, `INSERT INTO t VALUES (1)`); err != nil {
			t.Fatal(err)
		}
		was := server.PID()
		if err := end(ctx); err != nil {
			t.Fatal(err)
		}
		if pid := server.PID(); pid != 0 {
			t.Errorf("process %d after the end", pid)
		}
		if err := run(ctx, url, `SELECT`); err == nil {
			t.Error("a server that has ended answers")
		}
		if err := server.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		if pid := server.PID(); pid == 0 || pid == was {
			t.Errorf("process %d after %d", pid, was)
		}
		if got := count(t, url); got != i+1 {
			t.Errorf("%d rows after restart %d", got, i+1)
		}
	}
	other, err := server.NewDatabase(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if got := count(t, other); got != 0 {
		t.Errorf("%d rows in a new database", got)
	}
	if err := server.DropDatabase(ctx, other); err != nil {
		t.Error(err)
	}
	if err := server.Close(ctx); err != nil {
		t.Error(err)
	}
	closed = true
}

func run(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

func count(t *testing.T, url string) (n int) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM t`).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
