package tinker

import (
	"errors"

	"github.com/agl-go/agl"
)

// ErrDamaged marks weights that are there and cannot be read, because their bytes are not those that were
// saved. Other weights of the same engine may well be whole.
var ErrDamaged = errors.New("the weights are damaged")

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, format, args...)
}
