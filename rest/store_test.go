package rest_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/sqlite"
	"github.com/agl-go/agl/store/storetest"
)

// overHTTP is the engine over a driver, behind a server and its client.
func overHTTP(tb testing.TB, driver store.Driver) storetest.Instance {
	tb.Helper()
	clock := store.NewManualClock(time.Now())
	engine, err := store.New(tb.Context(), store.Config{Driver: driver, Clock: clock})
	if err != nil {
		tb.Fatal(err)
	}
	closeAfter(tb, engine)
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
