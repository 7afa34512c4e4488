package tinker

import (
	"errors"
	"math"

	"github.com/agl-go/agl"
)

// ErrDamaged marks weights that exist but cannot be read, because their bytes are not the bytes that were saved. Other
// weights of the same engine may be intact.
var ErrDamaged = errors.New("the weights are damaged")

// ErrUseless marks weights that compute no numbers any more, such as after steps with a learning rate that is far too high. A run that
// resumes makes the same steps again.
var ErrUseless = errors.New("the weights have become useless")

// CheckFinite returns an [ErrUseless] with code agl.CodeIllegalState if the loss or the norm of the gradient of a step is not finite.
func CheckFinite(loss, gradNorm float64) error {
	switch {
	case !isFinite(loss):
		return agl.Errorf(agl.CodeIllegalState, "%w: the engine returned the loss %v; begin a new run with a smaller learning rate", ErrUseless, loss)
	case !isFinite(gradNorm):
		return agl.Errorf(agl.CodeIllegalState, "%w: the engine returned the norm %v of the gradient; begin a new run with a smaller learning rate", ErrUseless, gradNorm)
	}
	return nil
}

func isFinite(v float64) bool { return !math.IsNaN(v) && !math.IsInf(v, 0) }

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, format, args...)
}
