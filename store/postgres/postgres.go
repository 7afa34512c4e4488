// Package postgres is the [store.Driver] that keeps everything in a PostgreSQL
// database, for several store servers at once: no server holds anything that
// another needs.
//
// A batch of the engine is one transaction of two round trips: one that locks and
// reads what it names, one that writes its changes and commits. Rows are locked
// in one order by everybody (rollouts, workers, sequences, resources, each by
// id), and nothing waits for another lock after that, so that batches of several
// servers wait for each other but do not get stuck; where they meet otherwise
// (two that make the same new row, say), one fails with [store.ErrRetry]. What is
// committed is told to the other servers by NOTIFY, and it is as durable as the
// database's synchronous_commit makes it.
//
// It must not know any rule of a rollout's life; the engine in package store
// decides, this package keeps and finds.
package postgres

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Config says which database to use, and how. The zero value of everything but
// URL is a default.
type Config struct {
	// URL names the database: postgres://USER:PASSWORD@HOST:PORT/DATABASE, with
	// libpq's parameters, such as sslmode, behind a ?. Several hosts may be listed;
	// the one that can be written to is used. Everything is kept in the schema
	// "agl" unless the URL has a search_path. The connections must not go through a
	// pooler that shares them between transactions. Required.
	URL string
	// Logger gets what an operator should know; nil discards it.
	Logger *slog.Logger
	// MaxConns bounds the connections of this process: one for writing, one for
	// listening, half of the others for reading by key, the rest for searching.
	// 0 is 8; at least 4. An export has one of its own.
	MaxConns int
	// ConnectTimeout bounds how long it takes to connect; 0 is 5 s.
	ConnectTimeout time.Duration
	// StatementTimeout bounds each statement; 0 is 15 s. A call ends 2 s after that
	// at the latest, whatever the network does.
	StatementTimeout time.Duration
	// LockTimeout bounds how long a batch waits for rows that another server has
	// locked before it is run again; 0 is 2 s.
	LockTimeout time.Duration
	// PollInterval is how often the engine is told to look at everything, so that
	// a lost notification is harmless; 0 is 15 s.
	PollInterval time.Duration
	// IdempotencyTTL is how long idempotency keys are remembered; 0 is a day.
	IdempotencyTTL time.Duration
	// EventTTL and MaxEvents bound the event log; 0 is an hour and 100,000. A few
	// more may be kept.
	EventTTL  time.Duration
	MaxEvents int
}

const (
	defaultMaxConns         = 8
	minConns                = 4
	defaultConnectTimeout   = 5 * time.Second
	defaultStatementTimeout = 15 * time.Second
	defaultLockTimeout      = 2 * time.Second
	defaultPollInterval     = 15 * time.Second
	defaultIdempotencyTTL   = 24 * time.Hour
	defaultEventTTL         = time.Hour
	defaultMaxEvents        = 100_000

	// answerSlack is what a call may take beyond the statement timeout.
	answerSlack = 2 * time.Second
)

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.MaxConns == 0 {
		c.MaxConns = defaultMaxConns
	}
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.ConnectTimeout, defaultConnectTimeout},
		{&c.StatementTimeout, defaultStatementTimeout},
		{&c.LockTimeout, defaultLockTimeout},
		{&c.PollInterval, defaultPollInterval},
		{&c.IdempotencyTTL, defaultIdempotencyTTL},
		{&c.EventTTL, defaultEventTTL},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.MaxEvents == 0 {
		c.MaxEvents = defaultMaxEvents
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.URL == "":
		return agl.Errorf(agl.CodeInvalid, "postgres.Config.URL is required")
	case c.MaxConns < minConns:
		return agl.Errorf(agl.CodeInvalid, "postgres.Config.MaxConns: got %d, must be at least %d", c.MaxConns, minConns)
	case c.MaxEvents < 0:
		return agl.Errorf(agl.CodeInvalid, "postgres.Config.MaxEvents: got %d, must not be negative", c.MaxEvents)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"ConnectTimeout", c.ConnectTimeout},
		{"StatementTimeout", c.StatementTimeout},
		{"LockTimeout", c.LockTimeout},
		{"PollInterval", c.PollInterval},
		{"IdempotencyTTL", c.IdempotencyTTL},
		{"EventTTL", c.EventTTL},
	} {
		if d.value < time.Millisecond {
			return agl.Errorf(agl.CodeInvalid, "postgres.Config.%s: got %v, must be at least 1 ms", d.name, d.value)
		}
	}
	return nil
}

// Driver is a store.Driver on PostgreSQL. Create it with [Open].
type Driver struct {
	config   Config
	writer   *pgconn.Config // of the connection that batches use
	keyed    *pgxpool.Pool  // for reading by key
	search   *pgxpool.Pool  // for reading what is to be found
	identity string         // of the database, in the ids of events
	server   string         // this process, in notifications
	log      *slog.Logger

	batch    batch
	turn     chan struct{} // capacity 1: whoever has put something in has the batch
	lastNow  atomic.Uint64 // the moment of the last batch, the bits of a float64
	listener listener

	stop context.CancelFunc
	done sync.WaitGroup
}

var _ store.Driver = (*Driver)(nil)

// Open connects to a database and brings its schema up to date. ctx bounds that
// alone; its values go on to the background work. CodeUnavailable when the
// database is away, ErrIllegalState when its schema is newer than this program.
func Open(ctx context.Context, config Config) (*Driver, error) {
	config = config.withDefaults()
	if err := config.validate(); err != nil {
		return nil, err
	}
	parsed, err := parse(config)
	if err != nil {
		return nil, err
	}
	if _, _, err := migrate(ctx, parsed); err != nil {
		return nil, err
	}
	d := &Driver{
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
	if err := d.identify(ctx); err != nil {
		d.keyed.Close()
		d.search.Close()
		return nil, err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	d.stop = stop
	d.listener.init(d, parsed.ConnConfig)
	d.done.Go(func() { d.listener.listen(background) })
	d.done.Go(func() { d.listener.forward(background) })
	d.done.Go(func() { d.forget(background) })
	return d, nil
}

// identify reads what distinguishes this database from others, copies of it too.
func (d *Driver) identify(ctx context.Context) error {
	return d.read(ctx, d.keyed, "read the database's identity", func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT s.identity || '.' || d.oid FROM store s, pg_database d WHERE d.datname = current_database()`).
			Scan(&d.identity)
	})
}

// Capabilities implements store.Driver.
func (d *Driver) Capabilities() store.Capabilities {
	return store.Capabilities{Notices: d.listener.notices}
}

// Close implements store.Driver.
func (d *Driver) Close(ctx context.Context) error {
	d.stop()
	d.done.Wait()
	d.keyed.Close()
	d.search.Close()
	return d.batch.session.close(ctx)
}

// bound limits a call, which ends even when the network swallows everything.
func (d *Driver) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.config.StatementTimeout+answerSlack)
}

// read runs f on a connection of a pool. f must not write: it is called once more
// when the connection turns out to be a dead one.
func (d *Driver) read(ctx context.Context, from *pgxpool.Pool, doing string, f func(ctx context.Context, conn *pgx.Conn) error) error {
	bounded, cancel := d.bound(ctx)
	defer cancel()
	for again := false; ; again = true {
		conn, err := from.Acquire(bounded)
		if err != nil {
			return failed(ctx, doing, err)
		}
		err = f(bounded, conn.Conn())
		dead := conn.Conn().IsClosed()
		conn.Release()
		if err == nil || again || !dead || bounded.Err() != nil {
			return failed(ctx, doing, err)
		}
		from.Reset() // the others will be dead too
	}
}

// Ping implements store.Driver.
func (d *Driver) Ping(ctx context.Context) error {
	return d.read(ctx, d.keyed, "ping", func(ctx context.Context, conn *pgx.Conn) error {
		var standby bool
		var readOnly string
		err := conn.QueryRow(ctx, `SELECT pg_is_in_recovery(), current_setting('transaction_read_only')`).Scan(&standby, &readOnly)
		if err == nil && (standby || readOnly != "off") {
			err = agl.Errorf(agl.CodeUnavailable, "postgres: the database takes no writes: it is a standby or read-only")
		}
		return err
	})
}

// collect reads all rows of a query.
func collect(rows pgx.Rows, err error, each func(*row) error) error {
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		if err := each(&row{values: rows.RawValues()}); err != nil {
			return err
		}
	}
	return rows.Err()
}
