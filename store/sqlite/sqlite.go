package sqlite

import (
	"context"
	"errors"
	"os"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

const (
	pageSize = 4096
	// These are the memory for pages of the file: of the writing connection, and of
	// each reading one.
	writerCacheKiB = 16 << 10
	readerCacheKiB = 2 << 10
	// maxReaders is the number of concurrent reads.
	maxReaders = 4
	// checkpointPages is the length of the write-ahead log, in pages, at which SQLite
	// checkpoints it.
	checkpointPages = 4000
	// maxLogBytes is the length of the log at which a commit forces a checkpoint,
	// because overlapping readers can keep SQLite from checkpointing by itself.
	// restartWait is how long it waits for these readers.
	maxLogBytes = 4 * checkpointPages * pageSize
	restartWait = 50 * time.Millisecond
	// busyTimeout is how long to wait for another program that has locked the file.
	busyTimeout = 5 * time.Second
	// sequenceBlock is how many sequence ids of a live rollout may be given out beyond
	// the one on disk.
	sequenceBlock = 64
	// A bucket has 1<<bucketBits rows. Deep pages are found by the counts of buckets.
	bucketBits = 10
)

// Driver is a driver.Driver over an SQLite file. Create it with [Open].
type Driver struct {
	config Config
	path   string
	lock   *lock
	file   os.FileInfo // the file that path named when it was opened
	looked os.FileInfo // the file as it was when checkContent read its identity last; writing guards it
	codec  *codec

	// writing guards the writing connection. The batch holds it during a call.
	writing sync.Mutex
	writer  *conn       // nil after a failure
	log     os.FileInfo // the write-ahead log that has the last commits; nil if they are all in the file
	// The file was overwritten: closing the last connection would write the log into it.
	abandoned bool
	readers   readers

	// mu guards the fields below, which mirror the last commit.
	mu        sync.RWMutex
	state     state
	crashes   map[int64]bool   // boots that ended without Close
	ahead     map[string]int64 // by rollout: last sequence ids that are not on disk
	live      map[string]int   // by worker: live attempts that are the latest of their rollout
	rollouts  *cache[string, *rolloutRow]
	workers   *cache[string, *workerRow]
	resources *cache[string, *resourcesRow]
	spans     *cache[int64, *recentSpans] // by stream
	failed    error                       // of the last commit
	lost      error                       // why only the next start can tell what the file holds; written by who has writing, too

	// These belong to the batch; one batch is open at a time.
	batch  batch
	oldest oldest
	packed []byte // a buffer for compression
	maxLog int64  // the log length at which to checkpoint
}

// oldest is the oldest record of each kind that expires.
type oldest struct {
	events  agl.Null[eventRow]      // the first row of the event log
	key     agl.Null[agl.Timestamp] // creation time of the oldest idempotency record
	garbage bool                    // there are dropped streams
}

var _ driver.Driver = (*Driver)(nil)

// Open opens the file to serve it. It creates a missing file and migrates an older
// schema. ErrIllegalState: another process serves the file, it belongs to another
// program, or its schema is newer.
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
		rollouts:  newCache[string, *rolloutRow](config.CacheBytes),
		workers:   newCache[string, *workerRow](config.CacheBytes / 8),
		resources: newCache[string, *resourcesRow](config.CacheBytes / 8),
		spans:     newCache[int64, *recentSpans](config.CacheBytes / 8),
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

// start prepares the file for use.
func (d *Driver) start(ctx context.Context) error {
	if err := d.lock.prepare(ctx, d.path, modeCreate); err != nil {
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
	if d.file, err = os.Stat(d.path); err != nil {
		return errPlace(d.path, err)
	}
	if d.state, err = readState(ctx, c); err != nil {
		return err
	}
	if err := d.findLog(); err != nil {
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

// configure sets up the writing connection.
func (d *Driver) configure(ctx context.Context, c *conn) error {
	// Only a full fsync reaches the disk on macOS; other systems ignore fullfsync.
	synchronous, full := "FULL", "ON"
	if d.config.Sync == SyncNormal {
		synchronous, full = "NORMAL", "OFF"
	}
	mode, err := c.text(ctx, "PRAGMA journal_mode = WAL")
	if err != nil {
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
		// SQLite truncates the log to this size when it restarts it.
		"journal_size_limit = "+itoa(2*checkpointPages*pageSize),
	)
}

// boot records that the file is in use, and whether the last process closed it
// properly.
func (d *Driver) boot(ctx context.Context, c *conn) error {
	next := d.state
	return d.commit(ctx, c, func() error {
		// An import gives out no sequence ids, so its end cannot have lost any.
		importing, err := d.readDocument(ctx, c, driver.UnfinishedImport())
		if err != nil {
			return err
		}
		if !next.clean && importing == nil {
			if err := c.exec(ctx, "INSERT INTO crashes (boot) VALUES (?)", next.boot); err != nil {
				return err
			}
		}
		next.boot++
		next.clean = false
		return next.write(ctx, c)
	}, func() { d.state = next })
}

// recall loads the state that must be in memory from the start.
func (d *Driver) recall(ctx context.Context, c *conn) error {
	if err := readCrashes(ctx, c, d.crashes); err != nil {
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

// readCrashes adds the boots that ended without Close.
func readCrashes(ctx context.Context, c *conn, into map[int64]bool) error {
	return c.query(ctx, "SELECT boot FROM crashes", nil, func(r row) error {
		into[r.int(0)] = true
		return nil
	})
}

// commit runs write in a transaction, and done after the commit. After an error
// nothing has changed, and done was not called.
func (d *Driver) commit(ctx context.Context, c *conn, write func() error, done func()) (err error) {
	if d.lost != nil {
		return d.lost
	}
	if err := d.present(ctx, false); err != nil {
		return err
	}
	if err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
		return err
	}
	err = write()
	if err == nil {
		err = c.exec(ctx, "COMMIT")
	}
	if err != nil {
		// This fails if SQLite has rolled back by itself.
		if rollback := c.exec(ctx, "ROLLBACK"); rollback != nil || broken(err) {
			d.retire(c)
		}
		return err
	}
	// If the file or its log was removed meanwhile, the commit is lost, unless it is put back. The connection stays: its log is
	// the only one that has the last commits.
	if err := d.present(ctx, true); err != nil {
		return d.lose(err)
	}
	done()
	return nil
}

// lose makes err the answer to all writes from now on.
func (d *Driver) lose(err error) error {
	d.mu.Lock()
	d.lost = err
	d.mu.Unlock()
	return err
}

// present checks that the path still names the file that this driver opened, that the file still holds this database, and after a
// commit that the log is still the one of the writing connection, too. Writes to a removed file are lost.
func (d *Driver) present(ctx context.Context, committed bool) error {
	info, err := os.Stat(d.path)
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		if committed {
			return errUnsure(d.path, err)
		}
		return errPlace(d.path, err)
	case err != nil || !os.SameFile(info, d.file):
		return agl.Errorf(agl.CodeUnavailable,
			"sqlite: the file %s was removed or replaced while it was served; nothing is written any more: restart the server, with the file put back or without it", d.path)
	}
	if err := d.checkContent(ctx, info); err != nil || !committed {
		return err
	}
	switch kept, err := d.logKept(); {
	case err != nil:
		return errUnsure(d.path, err)
	case !kept:
		return errLog(d.path)
	}
	return nil
}

// checkContent checks that a file that has changed still is this database: a backup of agl db backup that is copied over it has
// another identity. A plain copy has the same one, and is not noticed. Checkpoints change the file, too.
func (d *Driver) checkContent(ctx context.Context, info os.FileInfo) error {
	if d.looked != nil && d.looked.ModTime().Equal(info.ModTime()) && d.looked.Size() == info.Size() {
		return nil
	}
	identity, err := identityOf(context.WithoutCancel(ctx), d.path)
	if err != nil || identity == "" {
		return nil //nolint:nilerr // nothing is known: the next call looks again
	}
	if d.looked = info; identity == d.state.identity {
		return nil
	}
	d.abandoned = true
	return d.lose(errOverwritten(d.path))
}

// logKept reports whether the name of the log is still that of the log with the last commits. After it was moved away, whoever
// opens the database next makes an empty one.
func (d *Driver) logKept() (bool, error) {
	info, err := os.Stat(logName(d.path))
	switch {
	case errors.Is(err, os.ErrNotExist):
		return false, nil
	case err != nil:
		return false, err
	}
	return d.log == nil || os.SameFile(info, d.log), nil
}

// findLog notes the log of a new writing connection that has read the file. A log that was there before must be the same one:
// checkpoints keep it, and only [Driver.shut] can have removed it.
func (d *Driver) findLog() error {
	info, err := os.Stat(logName(d.path))
	switch {
	case err != nil && !errors.Is(err, os.ErrNotExist):
		return errPlace(d.path, err)
	case err != nil || d.log != nil && !os.SameFile(info, d.log):
		return d.lose(errLog(d.path))
	}
	d.log = info
	return nil
}

// boundLog forces a checkpoint when the log has grown too long. After a failure it
// tries again once the log has grown by another checkpoint interval.
func (d *Driver) boundLog(ctx context.Context, c *conn) error {
	info, err := os.Stat(logName(d.path))
	if err != nil || info.Size() < d.maxLog {
		return nil //nolint:nilerr // no log, nothing to do
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

// retire closes a connection that may be unusable. The next write opens another one. If the log was removed, the connection
// stays, as after a commit.
func (d *Driver) retire(c *conn) {
	if kept, err := d.logKept(); err == nil && !kept {
		_ = d.lose(errLog(d.path)) // the next write says so
		return
	}
	if d.writer == c {
		d.writer = nil
	}
	d.shut(c)
}

// shut closes a writing connection. The last connection moves the commits into the file and removes the log.
func (d *Driver) shut(c *conn) {
	_ = c.close()
	if _, err := os.Stat(logName(d.path)); errors.Is(err, os.ErrNotExist) {
		d.log = nil
	}
}

// connected returns the writing connection. The caller holds d.writing.
func (d *Driver) connected(ctx context.Context) (*conn, error) {
	if d.writer != nil {
		return d.writer, nil
	}
	c, err := connect(d.path, modeWrite)
	if err != nil {
		return nil, err
	}
	if err := d.configure(ctx, c); err != nil {
		d.shut(c)
		return nil, err
	}
	if err := d.findLog(); err != nil {
		_ = c.close()
		return nil, err
	}
	d.writer = c
	return c, nil
}

// Capabilities implements driver.Driver.
func (*Driver) Capabilities() driver.Capabilities { return driver.Capabilities{} }

// Statistics implements driver.Driver.
func (d *Driver) Statistics(context.Context) (agl.Statistics, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	return d.state.statistics(), nil
}

func (s *state) statistics() agl.Statistics {
	return agl.Statistics{
		Name: "sqlite", TotalRollouts: int(s.rollouts), TotalAttempts: int(s.attempts), TotalSpans: int(s.spans),
		TotalResources: int(s.resources), TotalWorkers: int(s.workers), QueueClosed: s.queueClosed,
	}
}

// Ping implements driver.Driver. After a failed write it writes again, because only a write
// shows whether the disk works and has space.
func (d *Driver) Ping(ctx context.Context) error {
	d.mu.RLock()
	failed, lost := d.failed, d.lost
	d.mu.RUnlock()
	if lost != nil {
		return lost
	}
	if err := d.readers.do(ctx, func(c *conn) error {
		_, err := c.number(ctx, "SELECT boot FROM state")
		return err
	}); err != nil {
		return fault(d.path, err)
	}
	d.writing.Lock()
	defer d.writing.Unlock()
	c, err := d.connected(ctx)
	if err != nil {
		return fault(d.path, err)
	}
	if failed == nil {
		if err := d.present(ctx, false); err != nil {
			return err
		}
		if err := c.exec(ctx, "BEGIN IMMEDIATE"); err != nil {
			return fault(d.path, err)
		}
		return fault(d.path, c.exec(ctx, "ROLLBACK"))
	}
	err = d.commit(ctx, c, func() error { return probe(ctx, c) }, func() {})
	d.note(err)
	return fault(d.path, err)
}

// probe writes more than a commit usually does, and deletes it again.
func probe(ctx context.Context, c *conn) error {
	if err := c.exec(ctx, "INSERT INTO keys (scope, fingerprint, create_time, made, resources_id) VALUES ('', '', 0, zeroblob(65536), '')"); err != nil {
		return err
	}
	return c.exec(ctx, "DELETE FROM keys WHERE scope = ''")
}

// note records the result of the last commit.
func (d *Driver) note(err error) {
	d.mu.Lock()
	d.failed = err
	d.mu.Unlock()
}

// Close implements driver.Driver.
func (d *Driver) Close(ctx context.Context) error {
	d.writing.Lock()
	defer d.writing.Unlock()
	err := fault(d.path, d.finish(ctx))
	d.release()
	if errors.Is(err, agl.ErrExhausted) { // every commit is in the file or its log, as after a kill
		d.config.Logger.WarnContext(ctx, "no space is left to tidy the database up; its log stays beside it, and the next start reads it", "file", d.path, "error", err)
		return nil
	}
	return err
}

// finish leaves the file complete: everything on disk, nothing in the log.
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
		d.mu.Lock() // Events may still be reading
		d.state = next
		d.mu.Unlock()
	})
	if err != nil {
		return err
	}
	d.readers.close()
	return c.script(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
}

// release frees everything that the driver holds.
func (d *Driver) release() {
	d.readers.close()
	if d.writer != nil && !d.abandoned {
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
