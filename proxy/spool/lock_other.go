//go:build !unix

package spool

import "os"

// lockDir opens the lock file of a directory. On this system it does not exclude other processes.
func lockDir(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

// syncDir does nothing: this system cannot sync directories.
func syncDir(string) error { return nil }
