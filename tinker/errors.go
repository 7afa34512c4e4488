package tinker

import "github.com/agl-go/agl"

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, format, args...)
}
