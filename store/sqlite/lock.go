package sqlite

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/filelock"
)

// lock gives this process the exclusive right to serve, migrate or vacuum a file. It
// locks a file beside the database, because SQLite's own locks last for one
// transaction. The lock ends with the process.
type lock struct{ file *os.File }

func lockName(path string) string { return path + ".lock" }

func logName(path string) string { return path + "-wal" }

// takeLock locks the database at path; ErrIllegalState when another process has it, and
// ErrInvalid, before anything is created, when path cannot be a database.
func takeLock(path string) (*lock, error) {
	if err := checkRegular(path); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(lockName(path), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, errPlace(path, err)
	}
	free, err := filelock.Try(f)
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

// mark records the identity of the database in the lock file, so that an emptied file is not mistaken for a new one. An empty
// identity removes the mark of a database that is no longer there, on disk before the log of another one begins.
func (l *lock) mark(identity string) error {
	if identity != "" {
		identity += "\n"
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	if _, err := l.file.WriteAt([]byte(identity), 0); err != nil {
		return err
	}
	return l.file.Sync()
}

// prepare checks that a file can be used, and makes it if it is missing and may be created.
func (l *lock) prepare(ctx context.Context, path, mode string) error {
	if err := l.checkNotEmptied(path); err != nil {
		return err
	}
	if err := checkNames(path); err != nil {
		return err
	}
	if err := l.checkLog(ctx, path); err != nil || mode != modeCreate {
		return err
	}
	return l.create(path)
}

// checkNotEmptied refuses a file that has lost its content. A missing file is fine:
// somebody removed it on purpose.
func (l *lock) checkNotEmptied(path string) error {
	file, err := os.Stat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return errPlace(path, err)
	case file.Size() > 0:
		return nil
	}
	mark, err := l.file.Stat()
	if err != nil {
		return errPlace(path, err)
	}
	log, err := os.Stat(logName(path))
	if mark.Size() > 0 || err == nil && log.Size() > 0 {
		return agl.Errorf(agl.CodeInternal,
			"sqlite: the file %s is damaged: it is empty, and it held a database; restore a backup, or remove the file to begin anew", path)
	}
	return nil
}

// checkLog refuses a file beside the write-ahead log of another one, which SQLite would mix into it. Copying a backup over a file
// whose server has crashed leaves them so.
func (l *lock) checkLog(ctx context.Context, path string) error {
	replaced, err := checkLog(ctx, path)
	if err != nil || !replaced {
		return err
	}
	// The mark is that of the file before. A log that is begun from now on belongs to this one.
	if err := l.mark(""); err != nil {
		return errPlace(path, err)
	}
	return nil
}

// checkLog is [lock.checkLog] for who does not have the lock. It reports whether the file is another one than that of the mark.
func checkLog(ctx context.Context, path string) (replaced bool, err error) {
	identity, identityErr := identityOf(ctx, path)
	log, logErr := os.Stat(logName(path))
	data, err := os.ReadFile(lockName(path)) // last: a server that begins a log has cleared the mark of another file before
	mark := strings.TrimSuffix(string(data), "\n")
	if err != nil || identityErr != nil || !isIdentity(identity) || !isIdentity(mark) || mark == identity {
		return false, nil //nolint:nilerr // without a mark or an identity nothing is known
	}
	if logErr != nil || log.Size() == 0 {
		return true, nil //nolint:nilerr // no log, nothing to mix
	}
	// The file may have been moved here with its log.
	own, err := inLog(path, identity)
	if err != nil {
		return true, errPlace(path, err)
	}
	before, err := inLog(path, mark)
	if err != nil {
		return true, errPlace(path, err)
	}
	if own && !before {
		return true, nil
	}
	return true, agl.Errorf(agl.CodeIllegalState,
		"sqlite: the file %[1]s was replaced, and %[1]s-wal is the log of the one before, which would damage it; stop the server, and move %[1]s-wal and %[1]s-shm away, or %[1]s.lock if the log is that of the file after all", path)
}

// inLog reports whether the log is that of the database with an identity. Every commit writes the row of the state, which has
// it. Reading the row with SQLite would not do: the table may be at other pages of the other file.
func inLog(path, identity string) (bool, error) {
	f, err := os.Open(logName(path))
	if err != nil {
		return false, err
	}
	defer func() { _ = f.Close() }() // nothing was written
	buf := make([]byte, 1<<20)
	kept := 0
	for {
		n, err := io.ReadFull(f, buf[kept:])
		chunk := buf[:kept+n]
		if bytes.Contains(chunk, []byte(identity)) {
			return true, nil
		}
		switch {
		case errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF):
			return false, nil
		case err != nil:
			return false, err
		}
		kept = copy(buf, chunk[len(chunk)-len(identity):]) // it may be at the end of one chunk and the beginning of the next
	}
}

// isIdentity reports whether s has the form that newIdentity gives.
func isIdentity(s string) bool {
	_, err := hex.DecodeString(s)
	return err == nil && len(s) == 12
}

// identityOf returns the identity of the file without its log.
func identityOf(ctx context.Context, path string) (string, error) {
	c, err := connect(path, modeWithoutLog)
	if err != nil {
		return "", err
	}
	defer func() { _ = c.close() }() // nothing was written
	return c.text(ctx, "SELECT identity FROM state")
}

func (l *lock) release() {
	_ = filelock.Release(l.file)
}

// isLocked reports whether a process has the database. The answer may be outdated when
// it is returned.
func isLocked(path string) bool {
	f, err := os.Open(lockName(path))
	if err != nil {
		return false
	}
	l := lock{f}
	defer l.release()
	free, err := filelock.Try(f)
	return err == nil && !free
}

// absolute is the path as SQLite needs it, without symbolic links: two names of one file
// must not have two locks.
func absolute(path string) (string, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", agl.Errorf(agl.CodeInvalid, "sqlite: the path %q: %w", path, err)
	}
	if resolved, err := filepath.EvalSymlinks(abs); err == nil {
		return resolved, nil
	}
	if _, err := os.Lstat(abs); err == nil {
		return "", agl.Errorf(agl.CodeInvalid, "sqlite: the path %s is a symbolic link that leads to no file; name the file itself", abs)
	}
	if dir, err := filepath.EvalSymlinks(filepath.Dir(abs)); err == nil {
		return filepath.Join(dir, filepath.Base(abs)), nil
	}
	return abs, nil // opening it says what is wrong
}

// checkRegular refuses a directory, a device, a pipe and a socket. A missing file is fine.
func checkRegular(path string) error {
	file, err := os.Stat(path)
	switch {
	case err != nil:
		return nil //nolint:nilerr // there is none yet, or creating the lock says what is wrong
	case file.IsDir():
		return errDirectory(path)
	case !file.Mode().IsRegular():
		return agl.Errorf(agl.CodeInvalid, "sqlite: %s is a device, a pipe or a socket, name a regular file", path)
	}
	return nil
}

// checkNames refuses a file with several names: hard links, or a mount of the file alone, as containers have. SQLite names
// the write-ahead log after the name by which it opens the file, so each name would have a
// log of its own, and a lock.
func checkNames(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return nil //nolint:nilerr // there is none yet, or opening it says what is wrong
	}
	if isMounted(path) {
		return agl.Errorf(agl.CodeIllegalState,
			"sqlite: the file %s is mounted by itself, so its write-ahead log, with the last commits, would not be beside it where it comes from; mount its directory", path)
	}
	if n := linkCount(info); n > 1 {
		return agl.Errorf(agl.CodeIllegalState,
			"sqlite: the file %s has %d names (hard links), each would have a write-ahead log of its own; remove the others, or serve a copy (agl db backup)", path, n)
	}
	return nil
}

// create makes a missing file, which only its owner may read and write. SQLite gives
// the files beside it the same permissions.
func (l *lock) create(path string) error {
	if _, err := os.Lstat(path); !errors.Is(err, os.ErrNotExist) {
		return nil // opening it says what is wrong
	}
	// The mark is that of a file that somebody has removed.
	if err := l.mark(""); err != nil {
		return errPlace(path, err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errPlace(path, err)
	}
	return f.Close() // no connection has it open yet, so this releases no locks
}
