// Package bounds checks the numbers of a configuration. It must not know what they are for.
//
//	err := bounds.NotNegative("runner: Config.", bounds.Number("Workers", c.Workers), bounds.Number("GracePeriod", c.GracePeriod))
package bounds

import "github.com/agl-go/agl"

// Field is a number or a duration with its name.
type Field struct {
	name     string
	value    any
	negative bool
}

// Number names a number or a duration.
func Number[T ~int | ~int64](name string, value T) Field { return Field{name, value, value < 0} }

// NotNegative refuses the first negative field with CodeInvalid. prefix comes before its name.
func NotNegative(prefix string, fields ...Field) error {
	for _, f := range fields {
		if f.negative {
			return agl.Errorf(agl.CodeInvalid, "%s%s: got %v, must not be negative", prefix, f.name, f.value)
		}
	}
	return nil
}
