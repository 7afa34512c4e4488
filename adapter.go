package agl

// Adapter turns the spans of one attempt into learning signals, such as triplets
// of prompt, response and reward. It does no I/O and does not change the spans.
type Adapter[T any] interface {
	Adapt(spans []Span) (T, error)
}

// AdapterFunc makes a function an Adapter.
type AdapterFunc[T any] func(spans []Span) (T, error)

// Adapt calls the function.
func (f AdapterFunc[T]) Adapt(spans []Span) (T, error) { return f(spans) }
