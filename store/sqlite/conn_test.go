package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	driverimpl "modernc.org/sqlite"
)

// A new version of a bundle does not read the finished rollouts.
func TestPlanOfUsedBundles(t *testing.T) {
	t.Parallel()
	c, err := connect("/new", modeMemory)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := migrate(t.Context(), c, "in memory"); err != nil {
		t.Fatal(err)
	}
	plan := ""
	if err := c.query(t.Context(), "EXPLAIN QUERY PLAN "+used, nil, func(r row) error {
		plan += r.text(3) + "\n" //nolint:mnd // the column of the text
		return nil
	}); err != nil {
		t.Error(err)
	}
	if !strings.Contains(plan, "SEARCH rollouts USING INDEX rollouts_status (status=?)") {
		t.Errorf("it is found by\n%s", plan)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}

// running is called by a statement that runs: SQLite forgets an interruption that comes
// before. Every connection reads the functions there are, so it is made before the first test.
var running = func() *func() {
	call := new(func())
	driverimpl.MustRegisterScalarFunction("running", 0, func(*driverimpl.FunctionContext, []driver.Value) (driver.Value, error) {
		(*call)()
		return int64(0), nil
	})
	return call
}()

// A statement of a connection that stops ends with its context, also while it runs.
func TestStops(t *testing.T) {
	t.Parallel()
	c, err := connect(filepath.Join(t.TempDir(), "x.db"), modeCreate)
	if err != nil {
		t.Fatal(err)
	}
	c.stops = true
	const endless = "WITH RECURSIVE n(i) AS (SELECT running() UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"
	for name, run := range map[string]func(ctx context.Context) error{
		"query": func(ctx context.Context) error {
			_, err := c.number(ctx, endless)
			return err
		},
		"exec":   func(ctx context.Context) error { return c.exec(ctx, "CREATE TABLE t AS "+endless) },
		"script": func(ctx context.Context) error { return c.script(ctx, "CREATE TABLE t AS "+endless) },
	} {
		ctx, cancel := context.WithCancel(t.Context())
		*running = cancel
		if err := run(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got error %v, want that of its context", name, err)
		}
	}
	if n, err := c.number(t.Context(), "SELECT count(*) FROM sqlite_schema"); n != 0 || err != nil {
		t.Errorf("%d tables, error %v, want none and a connection that goes on", n, err)
	}
	if err := c.close(); err != nil {
		t.Error(err)
	}
}
