package rest_test

import (
	"testing"
	"time"

	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/storetest"
)

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
		clock := store.NewManualClock(time.Now())
		engine, err := store.New(tb.Context(), store.Config{Driver: driver, Clock: clock})
		if err != nil {
			tb.Fatal(err)
		}
		closeAfter(tb, engine)
		return storetest.Instance{Store: serve(tb, engine, time.Minute), Advance: clock.Advance, Evicts: true}
	})
}
