// Package postgres is the [driver.Driver] that keeps everything in a PostgreSQL
// database. Several store servers can share one database, because no server keeps state
// that another one needs.
//
//	d, err := postgres.Open(ctx, postgres.Config{URL: "postgres://agl@db/agl"})
//	s, err := store.New(ctx, store.Config{Driver: d})
//
// A batch of the engine is one transaction of two round trips: the first locks and reads
// the rows that the batch names, the second writes its changes and commits. Every server
// locks rows in the same order (rollouts, workers, sequences, resources, each by id) and
// waits for no other lock after that, so batches wait for each other without deadlock. A
// batch with another conflict, for example two servers that insert the same row, fails
// with [driver.ErrRetry]. A commit notifies the other servers. Its durability is that of
// the database's synchronous_commit.
//
// It must not know any rule of a rollout's lifecycle: the engine in package store
// decides.
package postgres

import (
	"context"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// Open connects to a database and applies missing migrations. ctx bounds only that; the
// background work, which Close ends, inherits its values. ErrUnavailable: the database
// cannot be reached. ErrIllegalState: its schema is newer than this program.
func Open(ctx context.Context, config Config) (*Driver, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	parsed, err := parse(config)
	if err != nil {
		return nil, err
	}
	from, version, err := migrate(ctx, parsed, config.Logger)
	if err != nil {
		return nil, err
	}
	if from != version {
		config.Logger.InfoContext(ctx, "migrated the database", "database", location(parsed.ConnString()), "from", from, "to", version)
	}
	d := &Driver{
		schema: version,
		config: config,
		log:    config.Logger,
		server: strconv.FormatInt(time.Now().UnixNano(), 36),
		turn:   make(chan struct{}, 1),
		writer: writerConfig(parsed),
	}
	d.batch.driver = d
	readers := config.MaxConns - 2
	if d.keyed, err = pool(ctx, parsed, readers/2, byKey()); err != nil {
		return nil, failed(ctx, "connect", err)
	}
	if d.search, err = pool(ctx, parsed, readers-readers/2, nil); err != nil {
		d.keyed.Close()
		return nil, failed(ctx, "connect", err)
	}
	if err := d.compareClocks(ctx); err != nil {
		d.keyed.Close()
		d.search.Close()
		return nil, err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	d.listener.init(config, parsed.ConnConfig, d.server, version)
	d.done.Go(func() { d.listener.listen(background) })
	d.done.Go(func() { d.listener.forward(background) })
	d.done.Go(func() { d.forget(background) })
	d.done.Go(func() { d.giveWay(background) })
	return d, nil
}

// compareClocks warns of a clock that differs from the database's, and so from those of other servers: the deadline that one of
// them sets is read from the clock of another.
func (d *Driver) compareClocks(ctx context.Context) error {
	return d.read(ctx, d.keyed, "read the database's clock", func(ctx context.Context, conn *pgx.Conn) error {
		const tolerance = 2 * time.Second
		var theirs time.Time
		asked := time.Now()
		err := conn.QueryRow(ctx, `SELECT clock_timestamp()`).Scan(&theirs)
		took := time.Since(asked)
		if ahead := asked.Add(took / 2).Sub(theirs); err == nil && ahead.Abs() > tolerance+took {
			d.log.WarnContext(ctx, "the clock of this machine differs from the database's: with several servers, attempts end too early or too late; synchronise the clocks, for example by NTP",
				"ahead", ahead.Round(time.Second))
		}
		return err
	})
}

// Capabilities implements driver.Driver.
func (d *Driver) Capabilities() driver.Capabilities {
	return driver.Capabilities{Notices: d.listener.notices}
}

// Close implements driver.Driver.
func (d *Driver) Close(ctx context.Context) error {
	d.stop()
	d.done.Wait()
	d.keyed.Close()
	d.search.Close()
	return d.batch.session.close(ctx)
}

// Ping implements driver.Driver.
func (d *Driver) Ping(ctx context.Context) error {
	return d.read(ctx, d.keyed, "ping", func(ctx context.Context, conn *pgx.Conn) error {
		var standby, mayWrite, complete bool
		var readOnly string
		var version int
		// The statement after this one names what a newer schema may not have.
		err := conn.QueryRow(ctx, `SELECT COALESCE(max(version), 0) FROM schema_version`).Scan(&version)
		if err == nil {
			err = d.checkSchema(version)
		}
		if err != nil {
			return err
		}
		err = conn.QueryRow(ctx, `SELECT pg_is_in_recovery(), current_setting('transaction_read_only'),
			has_table_privilege('rollouts', 'INSERT') AND has_table_privilege('rollouts', 'UPDATE') AND has_sequence_privilege('queue_back', 'USAGE, UPDATE'),
			EXISTS (`+readStore+`)`).
			Scan(&standby, &readOnly, &mayWrite, &complete)
		switch {
		case err != nil:
			return err
		case standby || readOnly != "off":
			return agl.Errorf(agl.CodeUnavailable, "postgres: the database takes no writes: it is a standby or read-only")
		case !mayWrite:
			return agl.Errorf(agl.CodeUnavailable, "postgres: the role lacks a right: it may not write to the tables of agl")
		case !complete:
			return errIncomplete
		}
		return nil
	})
}
