package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"

	driverimpl "modernc.org/sqlite"
	lib "modernc.org/sqlite/lib"

	"github.com/agl-go/agl"
)

// primary masks the part of a result code that says what kind of failure it is.
const primary = 0xff

// resultCode returns the extended result code of an SQLite error, 0 for other errors.
func resultCode(err error) int {
	if e, ok := errors.AsType[*driverimpl.Error](err); ok {
		return e.Code()
	}
	return 0
}

// fault turns an error of SQLite into an error of the domain, which names the file and
// says what to do.
func fault(path string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*agl.Error](err); ok || agl.IsContextError(err) {
		return err
	}
	code := resultCode(err)
	switch code & primary {
	case lib.SQLITE_FULL:
		return noRoom(path, err)
	case lib.SQLITE_IOERR:
		if code == lib.SQLITE_IOERR_SHORT_READ || code == lib.SQLITE_IOERR_CORRUPTFS {
			return errDamaged(path, err) // it was cut off
		}
		// SQLite does not report every full disk as SQLITE_FULL.
		if free, known := freeBytes(filepath.Dir(path)); known && free < minFree {
			return noRoom(path, err)
		}
		return agl.Errorf(agl.CodeUnavailable, "sqlite: the file %s cannot be read or written, see what the system says about its disk: %w", path, err)
	case lib.SQLITE_READONLY, lib.SQLITE_PERM, lib.SQLITE_AUTH:
		return agl.Errorf(agl.CodeUnavailable, "sqlite: the file %[1]s cannot be written, it, %[1]s-wal, %[1]s-shm and their directory must be writable for this process: %[2]w", path, err)
	case lib.SQLITE_CANTOPEN:
		return agl.Errorf(agl.CodeUnavailable,
			"sqlite: the file %s cannot be opened, it and its directory must exist and be writable for this process: %w", path, err)
	case lib.SQLITE_BUSY, lib.SQLITE_LOCKED, lib.SQLITE_PROTOCOL:
		return agl.Errorf(agl.CodeUnavailable, "sqlite: the file %s is locked by another program: %w", path, err)
	case lib.SQLITE_NOTADB:
		return agl.Errorf(agl.CodeInternal,
			"sqlite: the file %s is not an SQLite database, or its beginning is damaged; see `agl db check`, or restore a backup: %w", path, err)
	case lib.SQLITE_CORRUPT, lib.SQLITE_FORMAT:
		return errDamaged(path, err)
	case lib.SQLITE_ERROR:
		// The statements are those of this program, so most likely the definition of a table is damaged.
		return agl.Errorf(agl.CodeInternal,
			"sqlite: a statement does not fit the tables of the file %s; if `agl db check` finds damage, restore a backup: %w", path, err)
	case lib.SQLITE_NOMEM:
		return agl.Errorf(agl.CodeUnavailable, "sqlite: no memory for the file %s: %w", path, err)
	case lib.SQLITE_TOOBIG:
		return agl.Errorf(agl.CodeInvalid, "sqlite: a document is larger than the 1 GB that SQLite takes: %w", err)
	}
	return agl.Errorf(agl.CodeInternal, "sqlite: %s: %w", path, err)
}

// minFree is the free space below which a failed write is reported as a full disk.
const minFree = 64 << 10

func noRoom(path string, err error) error {
	return agl.Errorf(agl.CodeExhausted,
		"sqlite: no space is left for the file %s; nothing of this write was kept, and writes work again when there is space: %w", path, err)
}

func errDamaged(path string, err error) error {
	return agl.Errorf(agl.CodeInternal,
		"sqlite: the file %s is damaged; `agl db check` says what is lost, a backup has it: %w", path, err)
}

// errPayload says that a document, named by what, differs from what was stored.
func errPayload(path, what string, err error) error {
	return agl.Errorf(agl.CodeInternal,
		"sqlite: %s in the file %s is damaged; `agl db check` says what else is: %w", what, path, err)
}

// broken reports whether the connection should be replaced after err.
func broken(err error) bool {
	switch resultCode(err) & primary {
	case 0, lib.SQLITE_CONSTRAINT, lib.SQLITE_FULL, lib.SQLITE_TOOBIG:
		return false
	}
	return true
}

func errDirectory(path string) error {
	return agl.Errorf(agl.CodeInvalid, "sqlite: %s is a directory, name a file", path)
}

// errPlace explains why a file could not be created or locked.
func errPlace(path string, err error) error {
	dir := filepath.Dir(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return agl.Errorf(agl.CodeInvalid, "sqlite: the directory %s of the file %s does not exist", dir, filepath.Base(path))
	case errors.Is(err, syscall.ENOTDIR):
		return agl.Errorf(agl.CodeInvalid, "sqlite: %s of the file %s is not a directory", dir, filepath.Base(path))
	case errors.Is(err, os.ErrPermission) || isReadOnly(err):
		return agl.Errorf(agl.CodeUnavailable, "sqlite: the directory %s of the file %s must be writable for this process: %w",
			dir, filepath.Base(path), err)
	}
	return agl.Errorf(agl.CodeUnavailable, "sqlite: the directory %s cannot be used: %w", dir, err)
}

// errLog says that the log with the last commits is gone.
func errLog(path string) error {
	return agl.Errorf(agl.CodeUnavailable,
		"sqlite: the write-ahead log %s was removed or replaced while the file was served; the last commits may be lost: stop the server, put the log back, restart the server, and run `agl db check`", logName(path))
}

// errOverwritten says that the file holds another database than the one that was opened.
func errOverwritten(path string) error {
	return agl.Errorf(agl.CodeUnavailable,
		"sqlite: the file %[1]s was overwritten while it was served, as by a backup that was copied over it; nothing is written any more: stop the server, move %[1]s-wal and %[1]s-shm away, and start it again", path)
}

// errUnsure says that after a commit nobody can tell whether the file and its log are still there.
func errUnsure(path string, err error) error {
	return agl.Errorf(agl.CodeUnavailable,
		"sqlite: the file %s cannot be looked up after a write, which may be lost; nothing is written any more: restart the server when its directory can be read again: %w", path, err)
}
