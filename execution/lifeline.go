package execution

import (
	"context"
	"errors"
	"os"
	"strconv"
	"time"
)

// lifelineFD is the descriptor under which a child finds its lifeline: the
// first of exec.Cmd.ExtraFiles.
const lifelineFD = 3

// lifelineEnv is what tells a child about its lifeline.
func lifelineEnv() string { return EnvLifeline + "=" + strconv.Itoa(lifelineFD) }

// errOrphaned is the cause when a child ends because its parent has died.
var errOrphaned = errors.New("the process that started this one is gone")

// holdLifeline returns a context that ends when the parent of this process does. If
// the process is still there after grace, it kills its group, as no parent is left
// to do it. release must be called at the end.
func holdLifeline(ctx context.Context, fd int, grace time.Duration) (held context.Context, release func(), err error) {
	pipe, err := openLifeline(fd)
	if err != nil {
		return nil, nil, err
	}
	held, cancel := context.WithCancelCause(ctx)
	done, quit := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		// The parent writes nothing: the read returns when the pipe ends, or when
		// release closes it.
		_, readErr := pipe.Read(make([]byte, 1))
		if errors.Is(readErr, os.ErrClosed) {
			return
		}
		cancel(errOrphaned)
		timer := time.NewTimer(grace)
		defer timer.Stop()
		select {
		case <-timer.C:
			killOwnGroup()
		case <-quit:
		}
	}()
	return held, func() {
		close(quit)
		// The read end carries no data: closing it cannot lose any.
		_ = pipe.Close()
		<-done
		cancel(context.Canceled)
	}, nil
}
