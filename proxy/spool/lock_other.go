//go:build !unix

package spool

import "os"

// lockDir opens the lock of a directory. Nothing but care keeps two processes
// apart here.
func lockDir(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

// syncDir does nothing: directories cannot be synced here.
func syncDir(string) error { return nil }
