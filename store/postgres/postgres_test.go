package postgres_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/drivertest"
	"github.com/agl-go/agl/store/postgres"
	"github.com/agl-go/agl/store/postgres/postgrestest"
	"github.com/agl-go/agl/store/storetest"
)

// server is one for all tests, which have databases of their own.
var server = postgrestest.Shared{Config: postgrestest.Stores()}

func TestMain(m *testing.M) {
	code := server.Run(m)
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = max(code, 1)
	}
	os.Exit(code)
}

// open opens a driver that is closed after the test.
func open(tb testing.TB, config postgres.Config) *postgres.Driver {
	tb.Helper()
	d, err := postgres.Open(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := d.Close(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
	})
	return d
}

func TestDriver(t *testing.T) {
	t.Parallel()
	drivertest.Run(t, func(tb testing.TB) driver.Driver {
		tb.Helper()
		return open(tb, postgres.Config{URL: server.Database(tb), MaxConns: 4})
	})
}

// engine runs the engine on a driver and ends both after the test.
func engine(tb testing.TB, config postgres.Config) *store.Store {
	tb.Helper()
	s := startEngine(tb, config, nil)
	tb.Cleanup(func() {
		if err := s.Close(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
	})
	return s
}

func startEngine(tb testing.TB, config postgres.Config, clock store.Clock) *store.Store {
	tb.Helper()
	d, err := postgres.Open(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	s, err := store.New(tb.Context(), store.Config{Driver: d, Clock: clock})
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB, _ storetest.OpenParams) storetest.Instance {
		tb.Helper()
		clock := storetest.NewManualClock(time.Unix(1_760_000_000, 0))
		config := postgres.Config{URL: server.Database(tb), MaxConns: 4}
		instance := storetest.Restartable(tb, func() storetest.Closer { return startEngine(tb, config, clock) })
		instance.Advance = clock.Advance
		return instance
	})
}
