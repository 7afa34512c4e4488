package store

import "sync"

// signal wakes any number of goroutines.
type signal struct {
	mu sync.Mutex
	c  chan struct{}
}

func (s *signal) init() { s.c = make(chan struct{}) }

// next returns a channel that the next broadcast closes.
func (s *signal) next() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.c
}

func (s *signal) broadcast() {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.c)
	s.c = make(chan struct{})
}
