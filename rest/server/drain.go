package server

import (
	"context"
	"sync"

	"github.com/agl-go/agl"
)

// drain ends the requests that block when the server is about to stop.
type drain struct {
	once    sync.Once
	started chan struct{} // closed when it has begun
}

func newDrain() *drain { return &drain{started: make(chan struct{})} }

func (d *drain) begin() { d.once.Do(func() { close(d.started) }) }

func (d *drain) begun() bool {
	select {
	case <-d.started:
		return true
	default:
		return false
	}
}

// run runs an operation. If the operation may block, its context ends when draining
// begins. released reports that draining ended the operation; err is then nil.
func (d *drain) run(ctx context.Context, blocks bool, op func(ctx context.Context) error) (released bool, err error) {
	if !blocks {
		return false, op(ctx)
	}
	blocked, cancel := context.WithCancel(ctx)
	defer cancel()
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		select {
		case <-d.started:
			cancel()
		case <-blocked.Done():
		}
	}()
	err = op(blocked)
	cancel()
	<-watching
	if agl.IsContextError(err) && d.begun() && ctx.Err() == nil {
		return true, nil
	}
	return false, err
}
