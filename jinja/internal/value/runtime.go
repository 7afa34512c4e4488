// Package value has Python's values and what Python does with them: operators, attributes, elements, methods, calls
// and the text of a value. It knows nothing of templates.
//
// A value is nil (None), a bool, an int64, a *big.Int beyond int64, a float64, a string, a *[Sequence], a *[Dict], a
// [Range], an *[Undefined] or an [Object]. No operation changes a value: the sandbox refuses the methods that would.
//
// The files build on each other in this order: runtime.go counts what a rendering takes; value.go, number.go, object.go
// and hash.go have the values; repr.go gives their text; compare.go compares them; call.go binds arguments to
// parameters; string_method.go and member.go have methods and attributes; subscript.go finds elements; format.go
// formats texts; arith.go has the operators, of which % formats.
package value

import (
	"fmt"
	"math"
)

// Limits bound what a rendering may take. Package jinja documents the fields; none is zero here.
type Limits struct{ Steps, Output, Work, Depth int }

// Runtime carries out the operations of one rendering and counts what they take. An operation that fails panics
// with a *[Failure].
type Runtime struct {
	limits             Limits
	steps, work, depth int
}

// New returns a runtime for one rendering.
func New(limits Limits) *Runtime { return &Runtime{limits: limits} }

// Failure is the panic of an operation that Python refuses or that exceeds a limit.
type Failure struct {
	Limit   bool
	Message string
}

// Failf ends the rendering with an operation that Python refuses.
func (r *Runtime) Failf(format string, args ...any) {
	panic(&Failure{Message: fmt.Sprintf(format, args...)})
}

func (r *Runtime) failLimitf(format string, args ...any) {
	panic(&Failure{Limit: true, Message: fmt.Sprintf(format, args...)})
}

// Step counts n elements of work.
func (r *Runtime) Step(n int) {
	if r.steps += n; r.steps > r.limits.Steps {
		r.failLimitf("the template takes more than %d steps", r.limits.Steps)
	}
}

// Reserve counts n bytes for a value that is about to be made.
func (r *Runtime) Reserve(n int) {
	r.CheckOutput(n)
	if r.work += n; r.work > r.limits.Work {
		r.failLimitf("the template makes more than %d bytes", r.limits.Work)
	}
}

// CheckOutput fails if a string of n bytes is too long.
func (r *Runtime) CheckOutput(n int) {
	if n > r.limits.Output {
		r.failLimitf("a value of %d bytes exceeds the limit of %d", n, r.limits.Output)
	}
}

// Made counts a string that was made, and returns it.
func (r *Runtime) Made(s string) string {
	r.Reserve(len(s))
	return s
}

// Read counts the work of scanning a string.
func (r *Runtime) Read(s string) { r.Step(len(s) / 64) }

// Times returns n*size, or a number above every limit if that overflows. It returns 0 if either is negative.
func Times(n, size int) int {
	const huge = math.MaxInt / 2 // a caller may add to it
	if n <= 0 || size <= 0 {
		return 0
	}
	if n > huge/size {
		return huge
	}
	return n * size
}

// Enter starts a nested call, loop or value. [Runtime.Leave] ends it.
func (r *Runtime) Enter() {
	if r.depth++; r.depth > r.limits.Depth {
		r.failLimitf("nesting exceeds %d levels", r.limits.Depth)
	}
}

// Leave ends what [Runtime.Enter] started.
func (r *Runtime) Leave() { r.depth-- }
