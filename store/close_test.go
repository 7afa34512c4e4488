package store_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
)

// slowReader is a driver whose reads of workers take until release is closed.
type slowReader struct {
	driver.Driver

	release chan struct{}
	closed  atomic.Bool
}

func (d *slowReader) Worker(ctx context.Context, id string) (agl.Worker, error) {
	<-d.release
	if d.closed.Load() {
		return agl.Worker{}, errors.New("the driver was closed under a read")
	}
	return d.Driver.Worker(ctx, id)
}

func (d *slowReader) Close(ctx context.Context) error {
	d.closed.Store(true)
	return d.Driver.Close(ctx)
}

// TestCloseWaitsForReads: Close refuses new calls at once, and closes the driver after
// the last running read.
func TestCloseWaitsForReads(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner, err := memory.New(memory.Config{})
		if err != nil {
			t.Fatal(err)
		}
		d := &slowReader{Driver: inner, release: make(chan struct{})}
		s, err := store.New(t.Context(), store.Config{Driver: d})
		if err != nil {
			t.Fatal(err)
		}
		read, closed := make(chan error, 1), make(chan error, 1)
		go func() {
			_, err := s.GetWorker(t.Context(), agl.GetWorkerParams{WorkerID: "w"})
			read <- err
		}()
		synctest.Wait()
		go func() { closed <- s.Close(t.Context()) }()
		synctest.Wait()
		if d.closed.Load() {
			t.Error("the driver is closed while a read runs")
		}
		if _, err := s.GetWorker(t.Context(), agl.GetWorkerParams{WorkerID: "w"}); !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("a read during Close: error %v, want ErrUnavailable", err)
		}
		close(d.release)
		if err := <-read; !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("the read that was running: error %v, want ErrNotFound", err)
		}
		if err := <-closed; err != nil || !d.closed.Load() {
			t.Errorf("Close: error %v, driver closed: %t", err, d.closed.Load())
		}
	})
}
