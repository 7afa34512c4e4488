package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/storetest"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newMemory(tb testing.TB, p storetest.OpenParams) *memory.Driver {
	tb.Helper()
	config := memory.Config{CapacityBytes: 1 << 40}
	if p.SpanBytes > 0 {
		config.EvictionThreshold.Bytes = p.SpanBytes
		config.SafeThreshold.Bytes = p.SafeSpanBytes
	}
	driver, err := memory.New(config)
	if err != nil {
		tb.Fatal(err)
	}
	return driver
}

// openManual opens a store over the memory driver whose clock is moved by hand.
func openManual(tb testing.TB, p storetest.OpenParams) storetest.Instance {
	tb.Helper()
	return overDriver(tb, newMemory(tb, p), store.NewManualClock(time.Unix(1_760_000_000, 0)))
}

// overDriver makes an instance of the engine over a driver that keeps its data
// when it is closed.
func overDriver(tb testing.TB, driver store.Driver, clock *store.ManualClock) storetest.Instance {
	tb.Helper()
	var s *store.Store
	open := func() agl.Store {
		var err error
		if s, err = store.New(tb.Context(), store.Config{Driver: driver, Clock: clock}); err != nil {
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
	return storetest.Instance{Store: open(), Advance: clock.Advance, Evicts: true, Restart: func() agl.Store {
		end()
		return open()
	}}
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, openManual)
}
