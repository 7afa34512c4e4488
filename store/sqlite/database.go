package sqlite

import (
	"context"
	"errors"
	"os"
	"path/filepath"

	lib "modernc.org/sqlite/lib"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/store/driver"
)

// Database implements driver.Database for a file. Create it with [OpenDatabase].
type Database struct {
	path string
}

var _ driver.Database = (*Database)(nil)

// OpenDatabase names a file to inspect or maintain. It opens nothing yet, so a server
// may be serving the file, and the file may be damaged. Methods return ErrNotFound if
// it does not exist; only Migrate creates it.
func OpenDatabase(_ context.Context, path string) (*Database, error) {
	path, err := absolute(path)
	if err != nil {
		return nil, err
	}
	return &Database{path}, nil
}

// Close implements driver.Database.
func (*Database) Close() error { return nil }

// exists checks that there is a file without opening it: closing it again would
// release the locks that SQLite holds on it in this process.
func (d *Database) exists() error {
	_, err := os.Stat(d.path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return agl.Errorf(agl.CodeNotFound, "sqlite: there is no file %s", d.path)
	case err != nil:
		return errPlace(d.path, err)
	}
	return checkRegular(d.path)
}

// read lends a read-only connection.
func (d *Database) read(ctx context.Context, use func(c *conn) error) error {
	if err := d.exists(); err != nil {
		return err
	}
	if _, err := checkLog(ctx, d.path); err != nil {
		return err
	}
	c, err := openReader(ctx, d.path)
	if err != nil {
		return fault(d.path, err)
	}
	defer func() { _ = c.close() }() // nothing was written
	return fault(d.path, use(c))
}

// write lends a connection to a file that no server uses. mode is one of the modes of
// connect.
func (d *Database) write(ctx context.Context, mode string, use func(c *conn) error) error {
	lock, err := takeLock(d.path)
	if err != nil {
		return err
	}
	defer lock.release()
	if err := lock.prepare(ctx, d.path, mode); err != nil {
		return err
	}
	return fault(d.path, lend(d.path, mode, use))
}

// lend opens a connection for one use.
func lend(path, mode string, use func(c *conn) error) error {
	c, err := connect(path, mode)
	if err != nil {
		return err
	}
	err = use(c)
	if closeErr := c.close(); err == nil {
		err = closeErr
	}
	return err
}

// ready refuses a file of another program, or with a newer schema.
func (d *Database) ready(ctx context.Context, c *conn) (have schema, known int, err error) {
	if known, err = knownVersion(); err != nil {
		return have, 0, err
	}
	if have, err = identify(ctx, c, d.path); err != nil {
		return have, known, err
	}
	return have, known, checkVersion(d.path, have.version, known)
}

// usable is ready for operations that need the current schema.
func (d *Database) usable(ctx context.Context, c *conn) error {
	have, known, err := d.ready(ctx, c)
	if err == nil && have.version < known {
		err = agl.Errorf(agl.CodeIllegalState, "sqlite: the file %s has schema version %d, this needs version %d; run `agl db migrate`",
			d.path, have.version, known)
	}
	return err
}

// Status implements driver.Database.
func (d *Database) Status(ctx context.Context) (driver.DatabaseStatus, error) {
	status := driver.DatabaseStatus{Name: "sqlite", Location: d.path}
	var err error
	if status.KnownVersion, err = knownVersion(); err != nil {
		return status, err
	}
	err = d.read(ctx, func(c *conn) error {
		version, err := c.text(ctx, "SELECT sqlite_version()")
		if err != nil {
			return err
		}
		status.Name += " " + version
		have, err := identify(ctx, c, d.path)
		if err != nil {
			return err
		}
		status.SchemaVersion = have.version
		free, err := c.number(ctx, "PRAGMA freelist_count")
		if err != nil {
			return err
		}
		size, err := c.number(ctx, "PRAGMA page_size")
		if err != nil {
			return err
		}
		status.FreeBytes = free * size
		if have.version != status.KnownVersion {
			return nil // the totals of another schema are unknown
		}
		s, err := readState(ctx, c)
		status.Contents = s.statistics()
		if err != nil {
			return err
		}
		imports, err := c.number(ctx, "SELECT count(*) FROM ("+unfinishedImport+")")
		status.PartlyFilled = imports > 0
		return err
	})
	if err != nil {
		return status, err
	}
	status.InUse = isLocked(d.path)
	status.Bytes, err = d.size()
	return status, err
}

// size returns the bytes of the file and its log.
func (d *Database) size() (total int64, err error) {
	for _, name := range []string{d.path, logName(d.path)} {
		info, err := os.Stat(name)
		switch {
		case err == nil:
			total += info.Size()
		case !errors.Is(err, os.ErrNotExist):
			return 0, agl.Errorf(agl.CodeUnavailable, "sqlite: the size of %s: %w", name, err)
		}
	}
	return total, nil
}

// Migrate implements driver.Database. No server may use the file.
func (d *Database) Migrate(ctx context.Context) (from, to int, err error) {
	err = d.write(ctx, modeCreate, func(c *conn) (err error) {
		from, to, err = migrate(ctx, c, d.path)
		return err
	})
	return from, to, err
}

// Vacuum implements driver.Database. No server may use the file, and the disk needs
// space for a copy of it.
func (d *Database) Vacuum(ctx context.Context) error {
	if err := d.exists(); err != nil {
		return err
	}
	return d.write(ctx, modeWrite, func(c *conn) error {
		c.stops = true
		if err := d.usable(ctx, c); err != nil {
			return err
		}
		if err := sweepAll(ctx, c); err != nil {
			return err
		}
		if err := c.script(ctx, "VACUUM"); err != nil {
			return err
		}
		return c.script(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	})
}

// sweepAll deletes the spans of all dropped streams.
func sweepAll(ctx context.Context, c *conn) error {
	for {
		stream, err := c.number(ctx, "SELECT min(stream) FROM garbage")
		if err != nil || stream == 0 {
			return err
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		for _, sql := range []string{
			"DELETE FROM spans WHERE stream = ?", "DELETE FROM span_buckets WHERE stream = ?", "DELETE FROM garbage WHERE stream = ?",
		} {
			if err := c.exec(ctx, sql, stream); err != nil {
				return err
			}
		}
	}
}

// Backup implements driver.Database. The copy is a consistent snapshot without free
// pages, on disk when Backup returns, and a database like any other.
func (d *Database) Backup(ctx context.Context, path string) (err error) {
	target, err := absolute(path)
	if err != nil {
		return err
	}
	if _, err := os.Lstat(target); err == nil {
		return agl.Errorf(agl.CodeConflict, "sqlite: the file %s exists; name a new file for the backup", target)
	}
	// An incomplete file must not look like a backup.
	partial, err := os.CreateTemp(filepath.Dir(target), filepath.Base(target)+".partial-*")
	if err != nil {
		return errPlace(target, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(partial.Name()) // it is incomplete
			_ = os.Remove(partial.Name() + "-journal")
		}
	}()
	if err := partial.Close(); err != nil {
		return errPlace(target, err)
	}
	if err := d.copyTo(ctx, partial.Name()); err != nil {
		return err
	}
	if err := newName(ctx, partial.Name()); err != nil {
		return fault(target, err)
	}
	if err := syncFile(partial.Name()); err != nil {
		return errPlace(target, err)
	}
	if err := durable.Publish(partial.Name(), target); err != nil {
		if errors.Is(err, os.ErrExist) {
			return agl.Errorf(agl.CodeConflict, "sqlite: the file %s exists; name a new file for the backup", target)
		}
		return errPlace(target, err)
	}
	return nil
}

// copyTo copies the database into an empty file.
func (d *Database) copyTo(ctx context.Context, path string) error {
	return d.read(ctx, func(c *conn) error {
		if _, _, err := d.ready(ctx, c); err != nil {
			return err
		}
		// VACUUM INTO needs a connection that may write.
		if err := c.script(ctx, "PRAGMA query_only = OFF"); err != nil {
			return err
		}
		c.stops = true
		err := c.exec(ctx, "VACUUM INTO ?", path)
		if err == nil {
			return nil
		}
		if resultCode(err)&primary == lib.SQLITE_FULL {
			return noRoom(path, err)
		}
		return err
	})
}

// newName gives a copy its own identity, because its events are not those of the original.
func newName(ctx context.Context, path string) error {
	return lend(path, modeWrite, func(c *conn) error { return c.exec(ctx, "UPDATE state SET identity = ?", newIdentity()) })
}

// syncFile flushes a file or directory to disk.
func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	return f.Sync()
}
