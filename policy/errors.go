package policy

import (
	"fmt"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, format, args...)
}

// damaged is an invalid that is tinker.ErrDamaged as well.
func damaged(format string, args ...any) error {
	return &agl.Error{Code: agl.CodeInvalid, Message: fmt.Sprintf(format, args...), Err: tinker.ErrDamaged}
}
