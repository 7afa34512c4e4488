package tinker

import "fmt"

func invalid(format string, args ...any) error {
	return fmt.Errorf("invalid: "+format, args...)
}
