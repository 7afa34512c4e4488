package execution

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"
)

// lifelineFD is the descriptor of a child's lifeline: the first of exec.Cmd.ExtraFiles.
const lifelineFD = 3

// errOrphaned is the cause when a child stops because its parent has died.
var errOrphaned = errors.New("the process that started this one is gone")

// holdLifeline returns a context that ends when the parent of this process does. If this process is still running
// after grace, it kills its process group, since there is no parent to do it. The caller calls release at the end.
func holdLifeline(ctx context.Context, fd int, grace time.Duration) (held context.Context, release func(), err error) {
	pipe, err := openLifeline(fd)
	if err != nil {
		return nil, nil, err
	}
	held, cancel := context.WithCancelCause(ctx)
	quit := make(chan struct{})
	var watching sync.WaitGroup
	watching.Go(func() {
		// The parent writes nothing: the read returns when the pipe ends, or when
		// release closes it.
		_, readErr := pipe.Read(make([]byte, 1))
		if errors.Is(readErr, os.ErrClosed) {
			return
		}
		cancel(errOrphaned)
		select {
		case <-time.After(grace):
			killOwnGroup()
		case <-quit:
		}
	})
	return held, func() {
		close(quit)
		// Closing the read end cannot lose data.
		_ = pipe.Close()
		watching.Wait()
		cancel(context.Canceled)
	}, nil
}
