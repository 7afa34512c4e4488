// Package postgres is the [driver.Driver] that keeps everything in a PostgreSQL
// database, for several store servers at once: no server holds anything that
// another one needs.
//
//	d, err := postgres.Open(ctx, postgres.Config{URL: "postgres://agl@db/agl"})
//	s, err := store.New(ctx, store.Config{Driver: d})
//
// A batch of the engine is one transaction of two round trips: the first locks and reads
// the rows that the batch names, the second writes its changes and commits. Every server
// locks rows in the same order (rollouts, workers, sequences, resources, each by id) and
// waits for no other lock after that, so batches wait for each other without deadlock. A
// batch that conflicts otherwise, for example when two servers insert the same row, fails
// with [driver.ErrRetry]. A commit notifies the other servers. It is as durable as the
// database's synchronous_commit makes it.
//
// It must not know any rule of a rollout's lifecycle: the engine in package store
// decides.
package postgres

import (
	"context"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// Config says which database to use, and how. Everything but URL has a default.
type Config struct {
	// URL names the database: postgres://USER:PASSWORD@HOST:PORT/DATABASE, with the
	// parameters of libpq, such as sslmode. Of several hosts, the one that accepts
	// writes is used. All tables are in the schema "agl" unless the URL has a
	// search_path. A pooler on the way must not share connections between
	// transactions. Required.
	URL string
	// Logger receives what an operator should know; nil discards it.
	Logger *slog.Logger
	// MaxConns bounds the connections of this process: one writes, one listens, half
	// of the others read by key, the rest search. 0 is 8; at least 4. An export opens
	// one more.
	MaxConns int
	// ConnectTimeout bounds connecting; 0 is 5 s.
	ConnectTimeout time.Duration
	// StatementTimeout bounds each statement; 0 is 15 s. Every call ends at most 2 s
	// later, even if the network is silent.
	StatementTimeout time.Duration
	// LockTimeout bounds how long a batch waits for rows that another server has
	// locked, before it runs again; 0 is 2 s.
	LockTimeout time.Duration
	// PollInterval is how often the engine looks at everything, in case a notification
	// was lost; 0 is 15 s.
	PollInterval time.Duration
	driver.Lifetimes
}

const (
	defaultMaxConns         = 8
	minConns                = 4
	defaultConnectTimeout   = 5 * time.Second
	defaultStatementTimeout = 15 * time.Second
	defaultLockTimeout      = 2 * time.Second
	defaultPollInterval     = 15 * time.Second
	defaultIdempotencyTTL   = 24 * time.Hour

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
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	c.Lifetimes = c.WithDefaults(defaultIdempotencyTTL)
	return c
}

func (c Config) validate() error {
	switch {
	case c.URL == "":
		return agl.Errorf(agl.CodeInvalid, "postgres.Config.URL is required")
	case c.MaxConns < minConns:
		return agl.Errorf(agl.CodeInvalid, "postgres.Config.MaxConns: got %d, must be at least %d", c.MaxConns, minConns)
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"ConnectTimeout", c.ConnectTimeout},
		{"StatementTimeout", c.StatementTimeout},
		{"LockTimeout", c.LockTimeout},
		{"PollInterval", c.PollInterval},
	} {
		if d.value < time.Millisecond {
			return agl.Errorf(agl.CodeInvalid, "postgres.Config.%s: got %v, must be at least 1 ms", d.name, d.value)
		}
	}
	return c.Validate("postgres.Config")
}

// Driver is a driver.Driver over PostgreSQL. Create it with [Open].
type Driver struct {
	config   Config
	writer   *pgx.ConnConfig // of the connection that batches use
	keyed    *pgxpool.Pool   // reads by key
	search   *pgxpool.Pool   // searches
	identity string          // of the database, a part of event ids
	server   string          // this process, in notifications
	log      *slog.Logger

	batch    batch
	turn     chan struct{} // capacity 1: the sender owns the batch
	lastNow  atomic.Uint64 // the time of the last batch, as the bits of a float64
	listener listener

	stop context.CancelFunc
	done sync.WaitGroup
}

var _ driver.Driver = (*Driver)(nil)

// Open connects to a database and applies missing migrations. ctx bounds that alone;
// the background work inherits its values. ErrUnavailable: the database cannot be
// reached. ErrIllegalState: its schema is newer than this program.
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

// identify reads what distinguishes this database from others, including copies of it.
func (d *Driver) identify(ctx context.Context) error {
	return d.read(ctx, d.keyed, "read the database's identity", func(ctx context.Context, conn *pgx.Conn) error {
		return conn.QueryRow(ctx, `SELECT s.identity || '.' || d.oid FROM store s, pg_database d WHERE d.datname = current_database()`).
			Scan(&d.identity)
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

// bound limits a call, which must end even if the network is silent.
func (d *Driver) bound(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, d.config.StatementTimeout+answerSlack)
}

// read runs f on a connection of a pool. f must not write: read calls it again if the
// connection turns out to be dead.
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
		from.Reset() // the other connections are probably dead, too
	}
}

// Ping implements driver.Driver.
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
