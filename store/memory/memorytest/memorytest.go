// Package memorytest opens stores in memory for tests of packages that use a store. It
// must not know those packages. Package storetest tests the stores themselves.
package memorytest

import (
	"context"
	"testing"

	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
)

// Open returns an empty store that evicts nothing below 1 GiB of spans. It is
// closed when the test is over.
func Open(tb testing.TB) *store.Store {
	tb.Helper()
	return OpenWith(tb, store.Config{})
}

// OpenWith is Open with a configuration, whose Driver is ignored.
func OpenWith(tb testing.TB, config store.Config) *store.Store {
	tb.Helper()
	driver, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
	if err != nil {
		tb.Fatal(err)
	}
	config.Driver = driver
	st, err := store.New(tb.Context(), config)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := st.Close(context.WithoutCancel(tb.Context())); err != nil {
			tb.Errorf("close the store: %v", err)
		}
	})
	return st
}
