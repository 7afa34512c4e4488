package client

import (
	"context"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// slot keeps samples and training of one model apart on engines that load snapshots into the adapter slot in which the
// model is trained. Only the newest snapshot can be sampled, and only until the weights change.
type slot struct {
	mu       sync.Mutex
	loaded   tinker.Path // the snapshot that equals the model's weights; zero if none does
	samples  int         // in flight
	training bool
	changed  chan struct{} // closed when samples or training changes
}

func newSlot() *slot { return &slot{changed: make(chan struct{})} }

// notify wakes up whoever waits. The lock is held.
func (s *slot) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// wait releases the lock until something changes.
func (s *slot) wait(ctx context.Context) error {
	changed := s.changed
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// beginSample waits for training calls and begins a sample of a snapshot.
func (s *slot) beginSample(ctx context.Context, snapshot tinker.Path) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for s.training {
		if err := s.wait(ctx); err != nil {
			return err
		}
	}
	if s.loaded != snapshot {
		return agl.Errorf(agl.CodeIllegalState, "client: %s is no longer what its model's weights are, and this engine keeps no other snapshot; publish again, or load a checkpoint into another model", snapshot)
	}
	s.samples++
	return nil
}

func (s *slot) endSample() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.samples--
	s.notify()
}

// beginTraining blocks new samples and waits for the running ones. Training calls are made one at a time.
func (s *slot) beginTraining(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.training = true
	for s.samples > 0 {
		if err := s.wait(ctx); err != nil {
			s.training = false
			s.notify()
			return err
		}
	}
	return nil
}

func (s *slot) endTraining(weightsChange bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.training = false
	if weightsChange {
		s.loaded = tinker.Path{}
	}
	s.notify()
}

func (s *slot) publish(snapshot tinker.Path) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = snapshot
}

// slots finds the slot of the model that a snapshot was published from, as long as the model is loaded.
type slots struct {
	mu     sync.Mutex
	byHost map[string]*slot // by the model in the snapshot's path
}

// publish records a new snapshot of the model in a slot.
func (s *slots) publish(of *slot, snapshot tinker.Path) {
	of.publish(snapshot)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byHost == nil {
		s.byHost = map[string]*slot{}
	}
	s.byHost[snapshot.Model] = of
}

// find returns nil for a snapshot of which nothing is known, and for a checkpoint.
func (s *slots) find(path tinker.Path) *slot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if path.Kind != tinker.KindSampler {
		return nil
	}
	return s.byHost[path.Model]
}

// remove forgets a model that is unloaded.
func (s *slots) remove(of *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for host, slot := range s.byHost {
		if slot == of {
			delete(s.byHost, host)
		}
	}
}
