package sqlite

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

const (
	pageSize = 4096
	// pageCache is the memory for pages of the writing connection, and of each of
	// the reading ones, in KiB.
	writerCacheKiB = 16 << 10
	readerCacheKiB = 2 << 10
	// maxReaders is how many reads run at a time.
	maxReaders = 4
	// checkpointPages is the length of the log, in pages, after which it is
	// written to the file.
	checkpointPages = 4000
	// maxLogBytes is the length of the log at which a commit insists on writing it
	// to the file, which readers that follow each other without a gap keep from
	// happening by itself, and restartWait how long it then waits for them.
	maxLogBytes = 4 * checkpointPages * pageSize
	restartWait = 50 * time.Millisecond
	// busyTimeout is how long to wait for a program that has the file locked, which
	// none does for long but by mistake.
	busyTimeout = 5 * time.Second
	// sequenceBlock is how many sequence ids a live rollout may be given beyond
	// the one that is written down.
	sequenceBlock = 64
	// bucketBits is the size of the buckets that pages are found by.
	bucketBits = 10
)

// Driver is a store.Driver on an SQLite file. Create it with [Open].
type Driver struct {
	config Config
	path   string
	lock   *lock
	codec  *codec

	// writing guards the connection that writes. The batch of the engine has it
	// while it calls.
	writing sync.Mutex
	writer  *conn // nil when it broke
	readers readers

	// mu guards what is in memory, which is what the last commit has left.
	mu        sync.RWMutex
	state     state
	crashes   map[int64]bool   // boots that did not end in order
	ahead     map[string]int64 // by rollout: last sequence ids that are beyond those written down
	live      map[string]int   // by worker: live attempts, each the latest of its rollout
	rollouts  *cache[*rolloutEntry]
	workers   *cache[*workerRow]
	resources *cache[*resourcesRow]
	failed    error // of the last commit

	// The batch's own, one batch at a time.
	batch  batch
	oldest oldest
	packed []byte // memory to compress in
	maxLog int64  // the length of the log to act upon
}

// oldest is what there may be to forget.
type oldest struct {
	events  agl.Null[eventRow]      // the first row of the log
	key     agl.Null[agl.Timestamp] // when the first idempotency record was made
	garbage bool                    // streams wait to be removed
}

var _ store.Driver = (*Driver)(nil)

// Open opens the file to serve it, creates it when there is none and migrates it
// when its schema is older. ErrIllegalState: another process serves it, or it is
// of another program, or of a newer version of this one.
func Open(ctx context.Context, config Config) (_ *Driver, err error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	path, err := absolute(config.Path)
	if err != nil {
		return nil, err
	}
	d := &Driver{
		config: config, path: path, maxLog: maxLogBytes,
		crashes: map[int64]bool{}, ahead: map[string]int64{}, live: map[string]int{},
		rollouts:  newCache[*rolloutEntry](config.CacheBytes),
		workers:   newCache[*workerRow](config.CacheBytes / 8),
		resources: newCache[*resourcesRow](config.CacheBytes / 8),
	}
	d.batch.driver = d
	if d.codec, err = newCodec(); err != nil {
		return nil, err
	}
	d.readers.init(path)
	if d.lock, err = takeLock(path); err != nil {
		d.codec.close()
		return nil, err
	}
	if err := d.start(ctx); err != nil {
		d.release()
		return nil, fault(path, err)
	}
	return d, nil
}

// start brings the file into service.
func (d *Driver) start(ctx context.Context) error {
	if err := d.lock.checkNotEmptied(d.path); err != nil {
		return err
	}
	c, err := connect(d.path, modeCreate)
	if err != nil {
		return err
	}
	d.writer = c
	from, to, err := migrate(ctx, c, d.path)
	if err != nil {
		return err
	}
	if from != to {
		d.config.Logger.InfoContext(ctx, "migrated the database", "file", d.path, "from", from, "to", to)
	}
	if err := d.configure(ctx, c); err != nil {
		return err
	}
	if d.state, err = readState(ctx, c); err != nil {
		return err
	}
	if err := d.boot(ctx, c); err != nil {
		return err
	}
	if err := d.recall(ctx, c); err != nil {
		return err
	}
	if err := d.lock.mark(d.state.identity); err != nil {
		return errPlace(d.path, err)
	}
	return nil
}

// configure sets up the connection that writes.
func (d *Driver) configure(ctx context.Context, c *conn) error {
	// On macOS, only a full fsync reaches the disk; elsewhere it is any other.
	synchronous, full := "FULL", "ON"
	if d.config.Sync == SyncNormal {
		synchronous, full = "NORMAL", "OFF"
	}
	mode := ""
	if err := c.query(ctx, "PRAGMA journal_mode = WAL", nil, func(r row) error {
		mode = r.text(0)
		return nil
	}); err != nil {
		return err
	}
	if mode != "wal" {
		return agl.Errorf(agl.CodeUnavailable,
			"sqlite: the file %s cannot be used with a write-ahead log (journal mode %q); its file system must know shared memory", d.path, mode)
	}
	return pragmas(ctx, c,
		"synchronous = "+synchronous,
		"fullfsync = "+full,
		"checkpoint_fullfsync = ON",
		"busy_timeout = "+itoa(busyTimeout.Milliseconds()),
		"cache_size = -"+itoa(writerCacheKiB),
		"wal_autocheckpoint = "+itoa(checkpointPages),
		// The log is cut to this when it starts anew.
		"journal_size_limit = "+itoa(2*checkpointPages*pageSize),
	)
}

// boot notes that the file is being served, and whether it was left in order.
func (d *Driver) boot(ctx context.Context, c *conn) error {
	next := d.state
	return d.commit(ctx, c, func() error {
		if !next.clean {
			if err := c.exec(ctx, "INSERT INTO crashes (boot) VALUES (?)", next.boot); err != nil {
				return err
			}
		}
		next.boot++
		next.clean = false
		return next.write(ctx, c)
	}, func() { d.state = next })
}

// recall reads what is kept in memory from the start.
func (d *Driver) recall(ctx context.Context, c *conn) error {
	if err := c.query(ctx, "SELECT boot FROM crashes", nil, func(r row) error {
		d.crashes[r.int(0)] = true
		return nil
	}); err != nil {
		return err
	}
	const living = `SELECT a.worker_id, count(*) FROM attempts AS a JOIN rollouts AS r ON r.latest = a.ordinal AND r.ordinal = a.rollout
		WHERE a.status IN ('preparing', 'running') AND a.worker_id <> '' GROUP BY a.worker_id`
	if err := c.query(ctx, living, nil, func(r row) error {
		d.live[r.text(0)] = int(r.int(1))
		return nil
	}); err != nil {
		return err
	}
	return d.oldest.read(ctx, c)
}

// commit runs write in a transaction, then done when it is on disk. After an
// error nothing has changed, and done was not called.
func (d *Driver) commit(ctx context.Context, c *conn, write func() error, done func()) (err error) {
	if err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err = write()
	if err == nil {
		err = c.exec(ctx, "COMMIT")
	}
	if err != nil {
		// SQLite may have rolled back by itself, which makes this an error.
		if rollback := c.exec(ctx, "ROLLBACK"); rollback != nil || broken(err) {
			d.retire(c)
		}
		return err
	}
	done()
	return nil
}

// boundLog writes the log to the file when it has become too long. It is tried
// again when the log has grown as much as it does between two checkpoints.
func (d *Driver) boundLog(ctx context.Context, c *conn) error {
	info, err := os.Stat(d.path + "-wal")
	if err != nil || info.Size() < d.maxLog {
		return nil //nolint:nilerr // without a log there is nothing to do
	}
	if err := pragmas(ctx, c, "busy_timeout = "+itoa(restartWait.Milliseconds())); err != nil {
		return err
	}
	busy, err := c.number(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
	if err != nil {
		return err
	}
	d.maxLog = maxLogBytes
	if busy != 0 {
		d.maxLog = info.Size() + checkpointPages*pageSize
	}
	return pragmas(ctx, c, "busy_timeout = "+itoa(busyTimeout.Milliseconds()))
}

// retire closes a connection that may be of no use any more. The next write
// opens another.
func (d *Driver) retire(c *conn) {
	_ = c.close()
	if d.writer == c {
		d.writer = nil
	}
}

// connected returns the connection that writes. The caller holds d.writing.
func (d *Driver) connected(ctx context.Context) (*conn, error) {
	if d.writer != nil {
		return d.writer, nil
	}
	c, err := connect(d.path, modeWrite)
	if err != nil {
		return nil, err
	}
	if err := d.configure(ctx, c); err != nil {
		_ = c.close()
		return nil, err
	}
	d.writer = c
	return c, nil
}

// Capabilities implements store.Driver.
func (*Driver) Capabilities() store.Capabilities { return store.Capabilities{} }

// Statistics implements store.Driver.
func (d *Driver) Statistics(context.Context) (agl.Statistics, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.state.statistics(), nil
}

func (s *state) statistics() agl.Statistics {
	return agl.Statistics{
		Name: "sqlite", TotalRollouts: int(s.rollouts), TotalAttempts: int(s.attempts), TotalSpans: int(s.spans),
		TotalResources: int(s.resources), TotalWorkers: int(s.workers),
	}
}

// Ping implements store.Driver. A write that failed last is tried again: only
// that tells whether there is room, and the disk is whole, by now.
func (d *Driver) Ping(ctx context.Context) error {
	if err := d.readers.do(ctx, func(c *conn) error {
		_, err := c.number(ctx, "SELECT boot FROM state")
		return err
	}); err != nil {
		return fault(d.path, err)
	}
	d.mu.RLock()
	failed := d.failed
	d.mu.RUnlock()
	d.writing.Lock()
	defer d.writing.Unlock()
	c, err := d.connected(ctx)
	if err != nil {
		return fault(d.path, err)
	}
	if failed == nil {
		if err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
			return fault(d.path, err)
		}
		return fault(d.path, c.exec(ctx, "ROLLBACK"))
	}
	err = d.commit(ctx, c, func() error { return probe(ctx, c) }, func() {})
	d.note(err)
	return fault(d.path, err)
}

// probe writes more than a commit of the engine mostly does, and leaves nothing.
func probe(ctx context.Context, c *conn) error {
	if err := c.exec(ctx, "INSERT INTO keys (scope, fingerprint, create_time, made, resources_id) VALUES ('', '', 0, zeroblob(65536), '')"); err != nil {
		return err
	}
	return c.exec(ctx, "DELETE FROM keys WHERE scope = ''")
}

// note remembers how the last commit went.
func (d *Driver) note(err error) {
	d.mu.Lock()
	d.failed = err
	d.mu.Unlock()
}

// Close implements store.Driver.
func (d *Driver) Close(ctx context.Context) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	err := d.finish(ctx)
	d.release()
	return fault(d.path, err)
}

// finish leaves the file in order: everything written down, nothing in the log.
func (d *Driver) finish(ctx context.Context) error {
	c, err := d.connected(ctx)
	if err != nil {
		return err
	}
	next := d.state
	next.clean = true
	err = d.commit(ctx, c, func() error {
		for id, last := range d.ahead {
			if err := c.exec(ctx, "UPDATE rollouts SET sequence = ? WHERE rollout_id = ?", last, id); err != nil {
				return err
			}
		}
		return next.write(ctx, c)
	}, func() {
		d.mu.Lock() // a subscriber may be reading still
		d.state = next
		d.mu.Unlock()
	})
	if err != nil {
		return err
	}
	d.readers.close()
	return c.script(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
}

// release gives everything back that the driver holds.
func (d *Driver) release() {
	d.readers.close()
	if d.writer != nil {
		_ = d.writer.close() // everything that matters is committed
		d.writer = nil
	}
	d.codec.close()
	d.lock.release()
}

// pragmas sets options of a connection.
func pragmas(ctx context.Context, c *conn, options ...string) error {
	for _, o := range options {
		if err := c.script(ctx, "PRAGMA "+o); err != nil {
			return err
		}
	}
	return nil
}

// readers are the connections that read, opened when they are needed.
type readers struct {
	path string
	free chan *conn // nil is one that is yet to be opened
}

func (p *readers) init(path string) {
	p.path = path
	p.free = make(chan *conn, maxReaders)
	for range maxReaders {
		p.free <- nil
	}
}

var errReadersClosed = errors.New("the readers are closed")

// do lends a connection to read.
func (p *readers) do(ctx context.Context, read func(c *conn) error) error {
	var c *conn
	var open bool
	select {
	case c, open = <-p.free:
		if !open {
			return errReadersClosed
		}
	case <-ctx.Done():
		return ctx.Err()
	}
	if c == nil {
		var err error
		if c, err = openReader(ctx, p.path); err != nil {
			p.free <- nil
			return err
		}
	}
	err := read(c)
	if err != nil && broken(err) {
		_ = c.close()
		c = nil
	}
	p.free <- c
	return err
}

// snapshot is do in one transaction: all that read sees is of one moment.
func (p *readers) snapshot(ctx context.Context, read func(c *conn) error) error {
	return p.do(ctx, func(c *conn) (err error) {
		if err := c.exec(ctx, "BEGIN"); err != nil {
			return err
		}
		defer func() {
			if end := c.exec(ctx, "ROLLBACK"); err == nil {
				err = end
			}
		}()
		return read(c)
	})
}

func openReader(ctx context.Context, path string) (*conn, error) {
	c, err := connect(path, modeReadOnly)
	if err != nil {
		return nil, err
	}
	if err := pragmas(ctx, c, "busy_timeout = "+itoa(busyTimeout.Milliseconds()), "cache_size = -"+itoa(readerCacheKiB), "query_only = ON"); err != nil {
		_ = c.close()
		return nil, err
	}
	return c, nil
}

// close closes the connections, once those that are lent come back.
func (p *readers) close() {
	for range cap(p.free) {
		c, open := <-p.free
		if !open {
			return
		}
		if c != nil {
			_ = c.close()
		}
	}
	close(p.free)
}
