package store_test

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/storetest"
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
	return overDriver(tb, newMemory(tb, p), storetest.NewManualClock(time.Unix(1_760_000_000, 0)))
}

// overDriver makes an instance of the engine over a driver that keeps its data
// when it is closed.
func overDriver(tb testing.TB, driver driver.Driver, clock *storetest.ManualClock) storetest.Instance {
	tb.Helper()
	instance := storetest.Restartable(tb, func() storetest.Closer {
		s, err := store.New(tb.Context(), store.Config{Driver: driver, Clock: clock})
		if err != nil {
			tb.Fatal(err)
		}
		return s
	})
	instance.Advance, instance.Evicts = clock.Advance, true
	return instance
}

func TestStore(t *testing.T) {
	t.Parallel()
	storetest.Run(t, openManual)
}
