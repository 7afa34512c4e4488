package sqlite

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/hex"
	"io/fs"
	"strconv"
	"strings"

	"github.com/agl-go/agl"
)

//go:embed migration/*.sql
var migrations embed.FS

// applicationID marks a file as ours: "agl" and a version of the mark.
const applicationID = 0x61676c01

// schema is what a file says about itself.
type schema struct {
	version int  // 0 when there is none
	empty   bool // nothing is in the file
}

// migrationNames returns the migrations in their order; the n-th leads to schema
// version n.
func migrationNames() ([]string, error) {
	names, err := fs.Glob(migrations, "migration/*.sql")
	if err != nil {
		return nil, err
	}
	for i, name := range names {
		number, _, _ := strings.Cut(strings.TrimPrefix(name, "migration/"), "_")
		if n, err := strconv.Atoi(number); err != nil || n != i+1 {
			return nil, agl.Errorf(agl.CodeInternal, "sqlite: migration %s is not number %d", name, i+1)
		}
	}
	return names, nil
}

func knownVersion() (int, error) {
	names, err := migrationNames()
	return len(names), err
}

// identify says what the file is; ErrIllegalState when it is of another program.
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

// migrate brings the file to the newest schema. The caller has the lock.
func migrate(ctx context.Context, c *conn, path string) (from, to int, err error) {
	names, err := migrationNames()
	if err != nil {
		return 0, 0, err
	}
	have, err := identify(ctx, c, path)
	if err != nil {
		return 0, 0, err
	}
	if err := checkVersion(path, have.version, len(names)); err != nil {
		return have.version, have.version, err
	}
	if have.empty {
		// Only an empty file can still be given these.
		if err := c.script(ctx, "PRAGMA page_size = "+strconv.Itoa(pageSize)); err != nil {
			return 0, 0, err
		}
	}
	for n := have.version; n < len(names); n++ {
		if err := migrateOne(ctx, c, names[n], n+1); err != nil {
			return have.version, n, err
		}
	}
	return have.version, len(names), nil
}

func migrateOne(ctx context.Context, c *conn, name string, version int) (err error) {
	text, err := migrations.ReadFile(name)
	if err != nil {
		return err
	}
	if err := c.script(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = c.script(ctx, "ROLLBACK") // the first error is the one to tell
		}
	}()
	if err := c.script(ctx, string(text)); err != nil {
		return err
	}
	if version == 1 {
		if err := populate(ctx, c); err != nil {
			return err
		}
	}
	marks := "PRAGMA application_id = " + strconv.Itoa(applicationID) + "; PRAGMA user_version = " + strconv.Itoa(version)
	if err := c.script(ctx, marks); err != nil {
		return err
	}
	return c.script(ctx, "COMMIT")
}

// populate makes the state of a new database.
func populate(ctx context.Context, c *conn) error {
	return c.exec(ctx, `INSERT INTO state (id, identity, boot, clean, queue_closed, start_ordered, last_start, last_rollout, last_attempt,
		last_span, first_place, last_place, last_event, rollouts, attempts, spans, span_bytes, resources, workers, ghosts)
		VALUES (1, ?, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)`, newIdentity())
}

// newIdentity tells one file, and its events, from all others.
func newIdentity() string {
	var identity [6]byte
	_, _ = rand.Read(identity[:]) // never fails
	return hex.EncodeToString(identity[:])
}
