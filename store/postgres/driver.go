package postgres

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/agl-go/agl/store/driver"
)

// Driver is a driver.Driver over PostgreSQL. Create it with [Open].
type Driver struct {
	config Config
	writer *pgx.ConnConfig // of the connection that batches use
	keyed  *pgxpool.Pool   // reads by key
	search *pgxpool.Pool   // searches
	server string          // this process, in notifications
	log    *slog.Logger

	batch    batch
	ends     pageEnds
	turn     chan struct{} // capacity 1: the sender owns the batch
	lastNow  atomic.Uint64 // the time of the last batch, as the bits of a float64
	listener listener
	schema   int         // the version of the schema that this program uses
	outdated atomic.Bool // the schema is newer

	stop context.CancelFunc
	done sync.WaitGroup
}

var _ driver.Driver = (*Driver)(nil)

// read calls f with a connection of a pool, and again with another one if that connection
// turns out to be dead. So f must not write.
func (d *Driver) read(ctx context.Context, from *pgxpool.Pool, doing string, f func(ctx context.Context, conn *pgx.Conn) error) error {
	if d.outdated.Load() {
		return errOutdated
	}
	bounded, cancel := d.config.bound(ctx)
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
