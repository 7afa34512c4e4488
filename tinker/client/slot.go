package client

import (
	"context"
	"sync"

	"github.com/agl-go/agl"
)

// gate keeps the samples and the training of one model apart, on engines whose snapshots are loaded into the
// place where the model is trained. Only the newest snapshot can be sampled, and only until the weights change.
type gate struct {
	mu       sync.Mutex
	newest   string // the snapshot that holds the model's weights; empty means none does
	samples  int    // that are running
	training bool
	changed  chan struct{} // closed when samples or training changes
}

func newGate() *gate { return &gate{changed: make(chan struct{})} }

func (g *gate) announce() {
	close(g.changed)
	g.changed = make(chan struct{})
}

// wait releases the lock until something changes.
func (g *gate) wait(ctx context.Context) error {
	changed := g.changed
	g.mu.Unlock()
	defer g.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beginSample waits for training calls and begins a sample of a snapshot.
func (g *gate) beginSample(ctx context.Context, snapshot string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.training {
		if err := g.wait(ctx); err != nil {
			return err
		}
	}
	if g.newest != snapshot {
		return agl.Errorf(agl.CodeIllegalState, "client: %s is not what its model's weights are now, and this engine changes other snapshots; publish again, or load a checkpoint into another model", snapshot)
	}
	g.samples++
	return nil
}

func (g *gate) endSample() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.samples--
	g.announce()
}

// beginTraining keeps new samples out and waits for the running ones. Training calls are made one at a time.
func (g *gate) beginTraining(ctx context.Context) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.training = true
	for g.samples > 0 {
		if err := g.wait(ctx); err != nil {
			g.training = false
			g.announce()
			return err
		}
	}
	return nil
}

func (g *gate) endTraining(weightsChange bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.training = false
	if weightsChange {
		g.newest = ""
	}
	g.announce()
}

func (g *gate) publish(snapshot string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.newest = snapshot
}
