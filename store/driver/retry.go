package driver

import (
	"errors"
	"math/rand/v2"
	"time"

	"github.com/agl-go/agl"
)

// ErrRetry is wrapped by the error of a Begin, Load, Claim or Apply that another process interfered with (a deadlock,
// a serialization failure, the same new row). The transaction has changed nothing and is run again; see [Retry].
var ErrRetry = errors.New("another process changed the same rows")

const (
	maxRetries = 12
	// The pause before a retry is random, below a limit that doubles from retryBase to
	// retryMost.
	retryBase = time.Millisecond
	retryMost = 100 * time.Millisecond
)

// Retry calls f until it returns anything but ErrRetry. The pauses grow and are random, so that two servers that
// collided once do not collide again. After 13 calls, about half a second if f does not wait itself, it returns ErrUnavailable. The pauses are
// real time: a test's manual clock would never end them.
func Retry(f func() error) error {
	for n := 0; ; n++ {
		err := f()
		switch {
		case !errors.Is(err, ErrRetry):
			return err
		case n == maxRetries:
			return agl.Errorf(agl.CodeUnavailable, "failed %d times: %w", n+1, err)
		}
		time.Sleep(rand.N(min(retryBase<<n, retryMost)))
	}
}
