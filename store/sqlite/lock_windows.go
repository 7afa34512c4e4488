package sqlite

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// linkCount returns 1, because Stat does not tell the number of names.
func linkCount(os.FileInfo) uint64 { return 1 }

// freeBytes returns the space that a directory's disk has left for this process.
func freeBytes(dir string) (n uint64, known bool) {
	name, err := windows.UTF16PtrFromString(dir)
	if err != nil || windows.GetDiskFreeSpaceEx(name, &n, nil, nil) != nil {
		return 0, false
	}
	return n, true
}

func isReadOnly(err error) bool { return errors.Is(err, windows.ERROR_WRITE_PROTECT) }
