package sqlite

import (
	"errors"
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

// mark notes which database the lock is of, so that a file which has lost all it
// had is not taken for a new one.
func (l *lock) mark(identity string) error {
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err := l.file.WriteAt([]byte(identity+"\n"), 0)
	return err
}

// checkNotEmptied refuses a file that has lost all it had. One that is not there
// was removed on purpose.
func (l *lock) checkNotEmptied(path string) error {
	file, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return errPlace(path, err)
	case file.IsDir():
		return agl.Errorf(agl.CodeInvalid, "sqlite: %s is a directory, name a file", path)
	case file.Size() > 0:
		return nil
	}
	mark, err := l.file.Stat()
	if err != nil {
		return errPlace(path, err)
	}
	log, err := os.Stat(path + "-wal")
	if mark.Size() > 0 || err == nil && log.Size() > 0 {
		return agl.Errorf(agl.CodeInternal,
			"sqlite: the file %s is damaged: it is empty, and it held a database; restore a backup, or remove the file to begin anew", path)
	}
	return nil
}

func (l *lock) release() {
	_ = unlock(l.file)
	_ = l.file.Close() // which unlocks it too
}

// isLocked reports whether a process has the database. It takes part in no race:
// the answer may be old when it is given.
func isLocked(path string) bool {
	f, err := os.Open(lockName(path))
	if err != nil {
		return false
	}
	l := lock{f}
	defer l.release()
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
