// Package panics makes errors of the panics of code that a user has handed in. It must not know whose code it is.
//
//	err := panics.Catch(func() error { return agent.Run(ctx) })
package panics

import (
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
)

// ErrGoexit says that a function has ended its goroutine, as t.Fatal of package testing does.
var ErrGoexit = errors.New("it ended its goroutine (runtime.Goexit) instead of returning")

// Error is a panic.
type Error struct {
	Value any
	Stack string
	// Where is the file and line that panicked; empty if it is unknown.
	Where string
}

func (e *Error) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// ExceptionType returns the type of the value, for the exception span.
func (e *Error) ExceptionType() string { return fmt.Sprintf("%T", e.Value) }

// Unwrap returns the value if it is an error.
func (e *Error) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// Catch calls f and makes an [*Error] of a panic.
func Catch(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &Error{Value: v, Stack: string(debug.Stack()), Where: where()}
		}
	}()
	return f()
}

// Located adds to an error of [Catch] where it panicked. An error that says so already, or is of another kind, stays as it is.
func Located(err error) error {
	if p, ok := errors.AsType[*Error](err); ok && p.Where != "" && !strings.Contains(err.Error(), ", at "+p.Where) {
		return fmt.Errorf("%w, at %s", err, p.Where)
	}
	return err
}

// where returns the file and line below the panic that is being recovered.
func where() string {
	callers := make([]uintptr, 32)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	panicked := false
	for {
		frame, more := frames.Next()
		inRuntime := strings.HasPrefix(frame.Function, "runtime.")
		if panicked && !inRuntime {
			return fmt.Sprintf("%s:%d", frame.File, frame.Line)
		}
		panicked = panicked || frame.Function == "runtime.gopanic"
		if !more {
			return ""
		}
	}
}
