//go:build !unix

package job

import "os"

// tryLock does nothing: only care keeps two processes apart here.
func tryLock(*os.File) (bool, error) { return true, nil }

func unlock(*os.File) error { return nil }
