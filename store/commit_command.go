package store

import (
	"context"

	"github.com/agl-go/agl/store/driver"
)

// command is one write. It holds the arguments and receives the answer.
type command interface {
	head() *header
	// load names what run needs.
	load(want *driver.LoadParams)
	// run applies the command to the unit of work, or returns an error and leaves it unchanged. A batch may be run
	// again (see driver.ErrRetry), so run first resets the answer of an earlier run, and it does not modify the
	// arguments.
	run(w *unitOfWork) error
	// finish acts after the dequeues of the batch have claimed rollouts.
	finish(w *unitOfWork)
}

// header is the part of a command that the committer uses.
type header struct {
	err  error
	done chan struct{} // capacity 1; nil when the caller leads
	lead bool          // when done receives: the caller leads the next batch, which holds this command
}

func (h *header) head() *header { return h }

func (*header) finish(*unitOfWork) {}

// write is a command made of two functions. result is what apply has returned.
type write[T any] struct {
	header

	wants  func(want *driver.LoadParams)
	apply  func(w *unitOfWork) (T, error)
	last   bool // apply acts after the dequeues of its batch
	result T
}

func (c *write[T]) load(want *driver.LoadParams) { c.wants(want) }

func (c *write[T]) run(w *unitOfWork) (err error) {
	if !c.last {
		c.result, err = c.apply(w)
	}
	return err
}

func (c *write[T]) finish(w *unitOfWork) {
	if c.last {
		c.result, c.err = c.apply(w)
	}
}

// submitLast is submit for a write that acts after the dequeues of its batch.
func submitLast[T any](ctx context.Context, s *Store, wants func(*driver.LoadParams), apply func(*unitOfWork) (T, error)) (T, error) {
	c := &write[T]{wants: wants, apply: apply, last: true}
	err := s.submit(ctx, c)
	return c.result, err
}

// submit runs a write: wants is the load of a command, apply its run. Both may be called again (see command.run), so what they set
// outside themselves, they set anew each time. The result is meaningless with an error.
func submit[T any](ctx context.Context, s *Store, wants func(*driver.LoadParams), apply func(*unitOfWork) (T, error)) (T, error) {
	c := &write[T]{wants: wants, apply: apply}
	err := s.submit(ctx, c)
	return c.result, err
}

// submitOnce is submit for a write with an idempotency key, which may be nil. apply records the key. For a repeat, apply is not
// called: the answer is what again reads by the record of the first write.
func submitOnce[T any](ctx context.Context, s *Store, key *idempotencyKey, wants func(*driver.LoadParams), apply func(*unitOfWork) (T, error), again func(*driver.IdempotencyRecord) (T, error)) (T, error) {
	var earlier *driver.IdempotencyRecord
	out, err := submit(ctx, s, func(want *driver.LoadParams) {
		key.load(want)
		wants(want)
	}, func(w *unitOfWork) (out T, err error) {
		if earlier, err = key.replay(w); err != nil || earlier != nil {
			return out, err
		}
		return apply(w)
	})
	if err == nil && earlier != nil {
		return again(earlier)
	}
	return out, err
}

// doWrite is do for an operation that is one write.
func doWrite[T any](ctx context.Context, s *Store, method string, invalid error, wants func(*driver.LoadParams), apply func(*unitOfWork) (T, error)) (T, error) {
	return do(ctx, s, method, invalid, func() (T, error) { return submit(ctx, s, wants, apply) })
}

func wantRollout(id string) func(*driver.LoadParams) {
	return func(want *driver.LoadParams) { want.Rollouts = append(want.Rollouts, id) }
}
