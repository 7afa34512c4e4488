package store

import "github.com/agl-go/agl/store/driver"

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
