package sqlite_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/drivertest"
	"github.com/agl-go/agl/store/sqlite"
	"github.com/agl-go/agl/store/storetest"
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

func closeDriver(tb testing.TB, d driver.Driver) {
	tb.Helper()
	if err := d.Close(context.WithoutCancel(tb.Context())); err != nil {
		tb.Error(err)
	}
}

func TestDriver(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(tb testing.TB) driver.Driver {
		tb.Helper()
		d := open(tb, sqlite.Config{Sync: sqlite.SyncNormal})
		tb.Cleanup(func() { closeDriver(tb, d) })
		return d
	})
}

// TestDriverWithoutMemory runs the suite with an empty cache, so that everything is
// read from the file.
func TestDriverWithoutMemory(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and its goroutines are those of TestDriver")
	}
	drivertest.Run(t, func(tb testing.TB) driver.Driver {
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
	clock := storetest.NewManualClock(time.Unix(1_760_000_000, 0))
	instance := storetest.Restartable(tb, func() storetest.Closer {
		s, err := store.New(tb.Context(), store.Config{Driver: open(tb, config), Clock: clock})
		if err != nil {
			tb.Fatal(err)
		}
		return s
	})
	instance.Advance = clock.Advance
	return instance
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, openStore)
}

// oneGoroutine skips a long test under the race detector in short runs: it has one
// goroutine, so there is nothing to find.
func oneGoroutine(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long, and all in one goroutine")
	}
}
