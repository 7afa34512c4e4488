package sqlite

import (
	"os"
	"path/filepath"

	"github.com/agl-go/agl"
)

// lock makes this process the only one that serves, migrates or vacuums a file.
// The lock is on a file beside it, since SQLite's own are for each transaction.
// It goes with the process, whatever becomes of the file that carries it.
type lock struct{ file *os.File }

func lockName(path string) string { return path + ".lock" }

// takeLock locks the database at path; ErrIllegalState when another process has it.
func takeLock(path string) (*lock, error) {
	f, err := os.OpenFile(lockName(path), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errPlace(path, err)
	}
	free, err := tryLock(f)
	if err != nil {
		_ = f.Close()
		return nil, agl.Errorf(agl.CodeUnavailable, "sqlite: the file %s cannot be locked, its file system must know locks: %w", path, err)
	}
	if !free {
		_ = f.Close()
		return nil, agl.Errorf(agl.CodeIllegalState,
			"sqlite: the file %s is in use by another process; one server has a file at a time, stop that one or name another file", path)
	}
	return &lock{f}, nil
}

func (l *lock) release() { _ = l.file.Close() } // which unlocks it

// isLocked reports whether a process has the database. It takes part in no race:
// the answer may be old when it is given.
func isLocked(path string) bool {
	f, err := os.Open(lockName(path))
	if err != nil {
		return false
	}
	defer f.Close()
	free, err := tryLock(f)
	return err == nil && !free
}

// absolute is the path as SQLite gets it.
func absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", agl.Errorf(agl.CodeInvalid, "sqlite: the path %q: %w", path, err)
	}
	return abs, nil
}
