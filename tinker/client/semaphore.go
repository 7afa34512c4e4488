package client

import "context"

// semaphore bounds how many may hold it at once. One of size 1 is a mutex that can be waited for with a context.
type semaphore chan struct{}

func (s semaphore) acquire(ctx context.Context) error {
	select {
	case s <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s semaphore) release() { <-s }

// narrow lowers the size for good, as far as nobody holds it.
func (s semaphore) narrow(size int) {
	for range cap(s) - size {
		select {
		case s <- struct{}{}:
		default:
		}
	}
}
