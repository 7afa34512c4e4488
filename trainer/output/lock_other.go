//go:build !unix

package output

import "os"

// tryLock does nothing: this system has no such locks.
func tryLock(*os.File) (bool, error) { return true, nil }

func unlock(*os.File) error { return nil }
