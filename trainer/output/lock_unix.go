//go:build unix

package output

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks an open file until it is closed or the process ends. It returns
// false if another process holds the lock.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// unlock releases the lock. Closing the file alone would leave the lock to a child
// process that has not closed its copy of the file yet.
func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }
