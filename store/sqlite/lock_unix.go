//go:build unix

package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// tryLock locks an open file for this process until it is closed, or the process
// is gone. It reports whether nobody else had it.
func tryLock(f *os.File) (bool, error) {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if errors.Is(err, unix.EWOULDBLOCK) {
		return false, nil
	}
	return err == nil, err
}

// unlock gives up the lock. Closing the file alone would leave it to a process that
// is just being started and has not dropped its copies of our files yet.
func unlock(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_UN) }

// freeBytes is the space that a directory's disk has left for this process.
func freeBytes(dir string) (n uint64, known bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, false
	}
	return uint64(st.Bavail) * uint64(st.Bsize), true //nolint:unconvert // their types differ from system to system
}

func isReadOnly(err error) bool { return errors.Is(err, unix.EROFS) }
