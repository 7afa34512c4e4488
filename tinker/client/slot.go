package client

import (
	"context"
	"maps"
	"math"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// slot is where an engine whose snapshots change trains a model and samples it. Such engines load a snapshot into the
// adapter slot of the model itself: only the newest can be sampled, and only until the weights change.
type slot struct {
	users  *semaphore.Weighted // a sample holds 1, a training call everything
	loaded tinker.Path         // the snapshot that equals the model's weights; zero if none does
}

const everything = math.MaxInt64

func newSlot() *slot { return &slot{users: semaphore.NewWeighted(everything)} }

// slots keep the samples and the training of each model apart. The zero value holds no slot.
type slots struct {
	mu     sync.Mutex
	byHost map[string]*slot // of loaded models that published, by the model in their snapshots' paths
}

// beginSample waits for the training calls of a snapshot's model and begins a sample, which end ends. Samples of checkpoints,
// and of models that this client has not loaded, do not block training.
func (s *slots) beginSample(ctx context.Context, snapshot tinker.Path) (end func(), err error) {
	s.mu.Lock()
	of := s.byHost[snapshot.Model]
	s.mu.Unlock()
	if of == nil || snapshot.Kind != tinker.KindSampler {
		return func() {}, nil
	}
	if err := of.users.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	end = func() { of.users.Release(1) }
	s.mu.Lock()
	defer s.mu.Unlock()
	if of.loaded != snapshot {
		end()
		return nil, agl.Errorf(agl.CodeIllegalState, "client: %s is no longer what its model's weights are, and this engine keeps no other snapshot; publish again, or load a checkpoint into another model", snapshot)
	}
	return end, nil
}

// beginTraining blocks new samples and waits for the running ones.
func (s *slots) beginTraining(ctx context.Context, of *slot) error {
	return of.users.Acquire(ctx, everything)
}

func (s *slots) endTraining(of *slot, weightsChange bool) {
	if weightsChange {
		s.mu.Lock()
		of.loaded = tinker.Path{}
		s.mu.Unlock()
	}
	of.users.Release(everything)
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
