package client

import (
	"context"
	"maps"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// slot is where an engine whose snapshots change trains a model and samples it. Such engines load a snapshot into the
// adapter slot of the model itself: only the newest can be sampled, and only until the weights change.
type slot struct {
	loaded   tinker.Path // the snapshot that equals the model's weights; zero if none does
	samples  int         // in flight
	training bool
}

// slots keep the samples and the training of each model apart. The zero value has none.
type slots struct {
	mu      sync.Mutex
	byHost  map[string]*slot // of loaded models that published, by the model in their snapshots' paths
	changed chan struct{}    // closed when a sample or a training call has ended; nil if nobody waits
}

// wait releases the lock until something has ended.
func (s *slots) wait(ctx context.Context) error {
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
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

// notify wakes up whoever waits. The lock is held.
func (s *slots) notify() {
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
}

// beginSample waits for the training calls of a snapshot's model and begins a sample, which end ends. Nothing keeps samples
// of other weights from training: of checkpoints, and of models that this client has not loaded.
func (s *slots) beginSample(ctx context.Context, snapshot tinker.Path) (end func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of := s.byHost[snapshot.Model]
	if of == nil || snapshot.Kind != tinker.KindSampler {
		return func() {}, nil
	}
	for of.training {
		if err := s.wait(ctx); err != nil {
			return nil, err
		}
	}
	if of.loaded != snapshot {
		return nil, agl.Errorf(agl.CodeIllegalState, "client: %s is no longer what its model's weights are, and this engine keeps no other snapshot; publish again, or load a checkpoint into another model", snapshot)
	}
	of.samples++
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		of.samples--
		s.notify()
	}, nil
}

// beginTraining blocks new samples and waits for the running ones. Training calls of a model are made one at a time.
func (s *slots) beginTraining(ctx context.Context, of *slot) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.training = true
	for of.samples > 0 {
		if err := s.wait(ctx); err != nil {
			of.training = false
			s.notify()
			return err
		}
	}
	return nil
}

func (s *slots) endTraining(of *slot, weightsChange bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	of.training = false
	if weightsChange {
		of.loaded = tinker.Path{}
	}
	s.notify()
}

// publish records the newest snapshot of a model.
func (s *slots) publish(of *slot, snapshot tinker.Path) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byHost == nil {
		s.byHost = map[string]*slot{}
	}
	s.byHost[snapshot.Model], of.loaded = of, snapshot
}

// remove forgets a model that is unloaded.
func (s *slots) remove(of *slot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	maps.DeleteFunc(s.byHost, func(_ string, other *slot) bool { return other == of })
}
