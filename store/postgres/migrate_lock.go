package postgres

import (
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
)

// servingLock is the advisory lock that each server shares while it may write, by schema. A migration takes it for itself.
const servingLock = `6384492, hashtext(current_schema())`

const (
	// lockWait is how long a migration waits for servers of an older version before it tells them again.
	lockWait = 2 * time.Second
	// betweenTries is for how long it lets them work in between: while it waits, none of them can begin to write.
	betweenTries = 5 * time.Second
	// wayTime is for how long a server leaves the lock to a migration that was announced.
	wayTime = 500 * time.Millisecond
)

// errOutdated is the error of everything after a newer program has migrated the schema: the documents in it may have forms that
// this one would misread.
var errOutdated = agl.Errorf(agl.CodeUnavailable, "postgres: a newer agl has migrated the database's schema: this server must be replaced by one of the new version")

// serve lets a connection write: while it is open, the schema is not migrated.
func (d *Driver) serve(ctx context.Context, conn *pgconn.PgConn) error {
	results, err := conn.Exec(ctx, `SELECT pg_advisory_lock_shared(`+servingLock+`); SELECT COALESCE(max(version), 0) FROM schema_version`).ReadAll()
	if err != nil {
		return err
	}
	version, err := strconv.Atoi(string(results[1].Rows[0][0]))
	if err != nil {
		return err
	}
	return d.checkSchema(version)
}

// errEmpty is the error while a backup is restored: it has made the tables, and not yet filled them.
var errEmpty = agl.Errorf(agl.CodeUnavailable, "postgres: the tables of the database are empty: a backup is being restored, or somebody has emptied them")

// errIncomplete is the error while a restore has filled some tables and not yet made all indexes: a row that is written now may
// collide with one of the backup, and make the restore fail.
var errIncomplete = agl.Errorf(agl.CodeUnavailable, "postgres: the tables of the database are incomplete: a backup is being restored; if none is, `agl db check` says what is missing")

// checkSchema reports errOutdated if the schema's version is newer than this program's.
func (d *Driver) checkSchema(version int) error {
	switch {
	case version == 0:
		return errEmpty
	case version <= d.schema:
		return nil
	}
	d.outdated.Store(true)
	return errOutdated
}

// giveWay ends the connection of the batches for a moment when a newer program is about to migrate the schema.
func (d *Driver) giveWay(ctx context.Context) {
	for {
		select {
		case <-d.listener.newer:
		case <-ctx.Done():
			return
		}
		select {
		case d.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		d.log.WarnContext(ctx, "a newer agl is about to migrate the database's schema")
		bounded, cancel := d.config.bound(ctx)
		err := errors.Join(d.batch.session.close(bounded), backoff.Sleep(ctx, wayTime))
		cancel()
		<-d.turn
		if err != nil && ctx.Err() == nil {
			d.log.WarnContext(ctx, "the connection of the batches broke", "error", err)
		}
	}
}

// announce tells the servers of older versions that the schema is about to be migrated.
func announce(ctx context.Context, conn *pgx.Conn, version int) error {
	o := rawjson.NewObject(nil)
	o.Int("schema", int64(version))
	_, err := conn.Exec(ctx, `SELECT pg_notify('`+channel+`', $1)`, string(o.End()))
	return err
}
