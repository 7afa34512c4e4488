package client_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/sqlite"
	"github.com/agl-go/agl/store/storetest"
)

// overHTTP is the engine over a driver, behind a server and its client.
func overHTTP(tb testing.TB, driver driver.Driver) storetest.Instance {
	tb.Helper()
	clock := storetest.NewManualClock(time.Now())
	engine, err := store.New(tb.Context(), store.Config{Driver: driver, Clock: clock})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := engine.Close(context.WithoutCancel(tb.Context())); err != nil {
			tb.Error(err)
		}
	})
	return storetest.Instance{Store: serve(tb, engine, time.Minute), Advance: clock.Advance}
}

// TestStore runs the suite of every store over the client, the server and the
// engine.
func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB, p storetest.OpenParams) storetest.Instance {
		tb.Helper()
		config := memory.Config{CapacityBytes: 1 << 40}
		if p.SpanBytes > 0 {
			config.EvictionThreshold = memory.Limit{Bytes: p.SpanBytes}
			config.SafeThreshold = memory.Limit{Bytes: p.SafeSpanBytes}
		}
		driver, err := memory.New(config)
		if err != nil {
			tb.Fatal(err)
		}
		instance := overHTTP(tb, driver)
		instance.Evicts = true
		return instance
	})
}

// TestStoreSQLite is TestStore over a file.
func TestStoreSQLite(t *testing.T) {
	t.Parallel()
	storetest.Run(t, func(tb testing.TB, _ storetest.OpenParams) storetest.Instance {
		tb.Helper()
		driver, err := sqlite.Open(tb.Context(), sqlite.Config{Path: filepath.Join(tb.TempDir(), "agl.db"), Sync: sqlite.SyncNormal})
		if err != nil {
			tb.Fatal(err)
		}
		return overHTTP(tb, driver)
	})
}
