package store

import "github.com/agl-go/agl/store/driver"

// command is one write. Its type holds the arguments and receives the answer.
type command interface {
	head() *header
	// load names what run needs.
	load(want *driver.LoadParams)
	// run applies the command to the unit of work, or returns an error and leaves it unchanged. A batch may be run
	// again (see driver.ErrRetry), so run first resets the answer of an earlier run, and it does not modify the
	// arguments.
	run(w *unitOfWork) error
}

// finisher is a command that acts after the dequeues of its batch have claimed rollouts.
type finisher interface {
	finish(w *unitOfWork)
}

// header is the part of a command that the committer uses.
type header struct {
	err  error
	done chan struct{} // capacity 1; nil when the caller leads
	lead bool          // when done receives: the caller leads the next batch, which holds this command
}

func (h *header) head() *header { return h }
