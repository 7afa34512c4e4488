package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/drivertest"
	"github.com/agl-go/agl/store/sqlite"
	"github.com/agl-go/agl/store/storetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a file of the test's own, unless the config names one.
func open(tb testing.TB, config sqlite.Config) *sqlite.Driver {
	tb.Helper()
	if config.Path == "" {
		config.Path = filepath.Join(tb.TempDir(), "agl.db")
	}
	d, err := sqlite.Open(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	return d
}

func closeDriver(tb testing.TB, d store.Driver) {
	tb.Helper()
	if err := d.Close(context.WithoutCancel(tb.Context())); err != nil {
		tb.Error(err)
	}
}

func TestDriver(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(tb testing.TB) store.Driver {
		tb.Helper()
		d := open(tb, sqlite.Config{Sync: sqlite.SyncNormal})
		tb.Cleanup(func() { closeDriver(tb, d) })
		return d
	})
}

// TestDriverWithoutMemory runs the suite with a cache that holds nothing, so
// that everything is read from the file.
func TestDriverWithoutMemory(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(tb testing.TB) store.Driver {
		tb.Helper()
		d := open(tb, sqlite.Config{Sync: sqlite.SyncNormal, CacheBytes: 1})
		tb.Cleanup(func() { closeDriver(tb, d) })
		return d
	})
}

// openStore opens the engine over a file of the test's own.
func openStore(tb testing.TB, _ storetest.OpenParams) storetest.Instance {
	tb.Helper()
	config := sqlite.Config{Path: filepath.Join(tb.TempDir(), "agl.db"), Sync: sqlite.SyncNormal}
	clock := store.NewManualClock(time.Unix(1_760_000_000, 0))
	var s *store.Store
	start := func() agl.Store {
		var err error
		if s, err = store.New(tb.Context(), store.Config{Driver: open(tb, config), Clock: clock}); err != nil {
			tb.Fatal(err)
		}
		return s
	}
	end := func() {
		if err := s.Close(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
	}
	tb.Cleanup(func() { end() })
	return storetest.Instance{Store: start(), Advance: clock.Advance, Restart: func() agl.Store {
		end()
		return start()
	}}
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, openStore)
}

// oneGoroutine leaves a long test out of short runs: under the race detector it
// would take minutes and could find nothing.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long, and all in one goroutine")
	}
}
