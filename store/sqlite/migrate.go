package sqlite

import (
	"context"
	"embed"
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/randomid"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

//go:embed migration/*.sql
var migrations embed.FS

// applicationID marks a file as ours: "agl" and a version.
const applicationID = 0x61676c01

// schema is what a file says about itself.
type schema struct {
	version int  // 0 if there is none
	empty   bool // the file is empty
}

func knownVersion() (int, error) {
	scripts, err := sqlstore.Migrations(migrations)
	return len(scripts), err
}

// identify reads the application and the schema version of a file; ErrIllegalState if
// it belongs to another program.
func identify(ctx context.Context, c *conn, path string) (schema, error) {
	id, err := c.number(ctx, "PRAGMA application_id")
	if err != nil {
		return schema{}, err
	}
	version, err := c.number(ctx, "PRAGMA user_version")
	if err != nil {
		return schema{}, err
	}
	objects, err := c.number(ctx, "SELECT count(*) FROM sqlite_schema")
	if err != nil {
		return schema{}, err
	}
	switch {
	case objects == 0 && id == 0 && version == 0:
		return schema{empty: true}, nil
	case id != applicationID:
		return schema{}, agl.Errorf(agl.CodeIllegalState,
			"sqlite: the file %s is a database of another program (application id %#x, not %#x); name another file", path, id, applicationID)
	}
	return schema{version: int(version)}, nil
}

// checkVersion refuses a schema that is newer than this program.
func checkVersion(path string, version, known int) error {
	if version > known {
		return agl.Errorf(agl.CodeIllegalState,
			"sqlite: the file %s has schema version %d, this program knows versions up to %d; use the newer program that wrote it, or restore a backup",
			path, version, known)
	}
	return nil
}

// migrate applies the missing migrations. The caller holds the lock.
func migrate(ctx context.Context, c *conn, path string) (from, to int, err error) {
	scripts, err := sqlstore.Migrations(migrations)
	if err != nil {
		return 0, 0, err
	}
	have, err := identify(ctx, c, path)
	if err != nil {
		return 0, 0, err
	}
	if err := checkVersion(path, have.version, len(scripts)); err != nil {
		return have.version, have.version, err
	}
	if have.empty {
		// The page size of a file is fixed by its first write.
		if err := c.script(ctx, "PRAGMA page_size = "+strconv.Itoa(pageSize)); err != nil {
			return 0, 0, err
		}
	}
	for n := have.version; n < len(scripts); n++ {
		if err := migrateOne(ctx, c, scripts[n], n+1); err != nil {
			return have.version, n, err
		}
	}
	return have.version, len(scripts), nil
}

func migrateOne(ctx context.Context, c *conn, script string, version int) (err error) {
	if err := c.script(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = c.script(ctx, "ROLLBACK") // the first error matters
		}
	}()
	if err := c.script(ctx, script); err != nil {
		return err
	}
	switch version {
	case 1:
		err = populate(ctx, c)
	case labelsVersion:
		err = labelAll(ctx, c)
	}
	if err != nil {
		return err
	}
	marks := "PRAGMA application_id = " + strconv.Itoa(applicationID) + "; PRAGMA user_version = " + strconv.Itoa(version)
	if err := c.script(ctx, marks); err != nil {
		return err
	}
	return c.script(ctx, "COMMIT")
}

// labelsVersion is the first schema version with labels.
const labelsVersion = 5

// labelAll writes the labels of the rollouts that an earlier version has stored.
func labelAll(ctx context.Context, c *conn) error {
	return c.query(ctx, "SELECT rollout, metadata FROM bodies WHERE metadata IS NOT NULL", nil, func(r row) error {
		return writeLabels(ctx, c, r.int(0), r.bytes(1), true)
	})
}

// populate inserts the state of a new database.
func populate(ctx context.Context, c *conn) error {
	return c.exec(ctx, `INSERT INTO state (id, identity, boot, clean, queue_closed, start_ordered, last_start, last_rollout, last_attempt,
		last_span, first_place, last_place, last_event, rollouts, attempts, spans, span_bytes, resources, workers, ghosts)
		VALUES (1, ?, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)`, newIdentity())
}

// newIdentity returns an id that distinguishes this file, and its events, from all
// others.
func newIdentity() string {
	return randomid.Hex(6)
}
