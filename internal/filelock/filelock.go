// Package filelock locks a file for one process at a time. The lock ends with the process, however that ends.
//
// It must not know what the file protects.
package filelock

import "os"

// Try locks an open file until [Release], or until this process ends. free is false if another process holds the lock. On
// a system without such locks it is always true.
func Try(f *os.File) (free bool, err error) { return tryLock(f) }

// Release unlocks and closes the file. Closing it alone would leave the lock to a child process that is just being
// started and has not closed its copy of the file yet.
func Release(f *os.File) error { return release(f) }
