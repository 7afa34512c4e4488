//go:build unix

package sqlite

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// linkCount returns the number of names that a file has.
func linkCount(info os.FileInfo) uint64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return uint64(st.Nlink) //nolint:unconvert // its type differs from system to system
	}
	return 1
}

// freeBytes returns the space that a directory's disk has left for this process.
func freeBytes(dir string) (n uint64, known bool) {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return 0, false
	}
	return uint64(st.Bavail) * uint64(st.Bsize), true //nolint:unconvert // their types differ from system to system
}

func isReadOnly(err error) bool { return errors.Is(err, unix.EROFS) }
