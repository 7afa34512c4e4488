package sqlite

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	lib "modernc.org/sqlite/lib"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

// unfinishedImport reads driver.UnfinishedImport.
const unfinishedImport = "SELECT id FROM documents WHERE kind = 'import' AND id = 'unfinished'"

// Check implements driver.Database. It checks the structure of the file, the checksum
// of every document, and the references and totals.
func (d *Database) Check(ctx context.Context, report func(driver.Problem)) error {
	codec, err := newCodec()
	if err != nil {
		return err
	}
	defer codec.close()
	check := checker{d: &Driver{path: d.path, codec: codec}, report: report}
	return check.survive(d.read(ctx, func(c *conn) error {
		check.c = c
		c.stops = true
		// Read one moment, although a server may be writing.
		if err := c.exec(ctx, "BEGIN"); err != nil {
			return err
		}
		defer func() { _ = c.exec(ctx, "ROLLBACK") }() // nothing was written
		if err := d.usable(ctx, c); err != nil {
			return err // nothing else can be checked without the schema
		}
		for _, part := range []func(context.Context) error{
			check.structure, check.schema, check.rollouts, check.attempts, check.workers, check.spans, check.resources, check.documents, check.keys, check.events, check.consistency, check.counts,
		} {
			if err := check.survive(part(ctx)); err != nil {
				return err
			}
		}
		return nil
	}))
}

type checker struct {
	d      *Driver
	c      *conn
	report func(driver.Problem)
}

func (k *checker) found(where, what string) { k.report(driver.Problem{Where: where, What: what}) }

// survive reports damage that ended one part of the check, so that the other parts
// still run.
func (k *checker) survive(err error) error {
	code := resultCode(err)
	switch {
	case code&primary == lib.SQLITE_CORRUPT, code&primary == lib.SQLITE_NOTADB, code&primary == lib.SQLITE_ERROR,
		code == lib.SQLITE_IOERR_SHORT_READ, errors.Is(err, errNoState):
		k.found("file "+k.d.path, "reading stopped: "+err.Error())
		return nil
	}
	return err
}

// maxStructure bounds the reported findings about the structure: one bad page causes
// many.
const maxStructure = 100

func (k *checker) structure(ctx context.Context) error {
	return k.c.query(ctx, "PRAGMA integrity_check("+itoa(maxStructure)+")", nil, func(r row) error {
		if text := r.text(0); text != "ok" {
			k.found("file "+k.d.path, strings.TrimSpace(text)+"; what its pages hold may be lost")
		}
		return nil
	})
}

// schema compares the definitions of tables and indexes with those of a new file.
func (k *checker) schema(ctx context.Context) error {
	have, err := definitions(ctx, k.c)
	if err != nil {
		return err
	}
	c, err := connect("/new", modeMemory)
	if err != nil {
		return err
	}
	defer func() { _ = c.close() }() // it was in memory
	if _, _, err := migrate(ctx, c, "in memory"); err != nil {
		return err
	}
	want, err := definitions(ctx, c)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if have[name] != want[name] {
			k.found("file "+k.d.path, "the definition of "+name+" was changed; what it holds may be read wrongly")
		}
	}
	return nil
}

// definitions returns what defines each table and index, by "table NAME" and "index NAME".
func definitions(ctx context.Context, c *conn) (map[string]string, error) {
	defs := map[string]string{}
	err := c.query(ctx, "SELECT type, name, tbl_name, coalesce(sql, '') FROM sqlite_schema", nil, func(r row) error {
		defs[r.text(0)+" "+r.text(1)] = r.text(2) + " " + r.text(3)
		return nil
	})
	return defs, err
}

// damaged reports a row that cannot be decoded, and what is lost by it.
func (k *checker) damaged(where string, err error, lost string) {
	text := err.Error()
	if e, ok := err.(*agl.Error); ok && e.Err != nil { //nolint:errorlint // the cause of this very error
		text = e.Err.Error()
	}
	k.found(where, text+"; "+lost)
}

func (k *checker) rollouts(ctx context.Context) error {
	return k.c.query(ctx, "SELECT "+rolloutColumns+" FROM rollouts AS r LEFT JOIN bodies AS b ON b.rollout = r.ordinal", nil, func(r row) error {
		id := r.text(1)
		if r.null(15) {
			k.found("rollout "+id, "its task is missing")
			return nil
		}
		if _, err := k.d.scanRollout(slices.Concat(r, row{nil})); err != nil {
			k.damaged("rollout "+id, err, "its task, config and metadata are lost")
		}
		if status := agl.RolloutStatus(r.text(6)); !status.Valid() {
			k.found("rollout "+id, "its status is "+string(status))
		} else if status.Queued() == r.null(7) {
			k.found("rollout "+id, "its status is "+string(status)+", which its place in the queue contradicts")
		}
		return nil
	})
}

func (k *checker) attempts(ctx context.Context) error {
	return k.c.query(ctx, "SELECT "+attemptColumns+`, r.rollout_id, (SELECT count(*) FROM spans AS s WHERE s.stream = a.stream),
		(SELECT coalesce(sum(size), 0) FROM spans AS s WHERE s.stream = a.stream)
		FROM attempts AS a LEFT JOIN rollouts AS r ON r.ordinal = a.rollout`, nil, func(r row) error {
		if r.null(attemptWidth) {
			k.found("attempt "+r.text(1), "its rollout is missing")
			return nil
		}
		a := scanAttempt(r, r.text(attemptWidth))
		where := "attempt " + a.cur.RolloutID + "/" + a.cur.AttemptID
		switch {
		case !a.cur.Status.Valid():
			k.found(where, "its status is "+string(a.cur.Status))
		case a.cur.Metadata != nil && !a.cur.Metadata.IsValid(rawjson.Options()):
			k.found(where, "its metadata is not a JSON document")
		case a.spans != r.int(attemptWidth+1) || a.bytes != r.int(attemptWidth+2):
			k.found(where, "it has "+itoa(r.int(attemptWidth+1))+" spans of "+itoa(r.int(attemptWidth+2))+" bytes, and should have "+itoa(a.spans)+" of "+itoa(a.bytes))
		}
		return nil
	})
}

func (k *checker) workers(ctx context.Context) error {
	return k.c.query(ctx, "SELECT "+workerColumns+" FROM workers AS w", nil, func(r row) error {
		w := scanWorker(r).cur
		if !slices.Contains(agl.WorkerStatuses(), w.Status) {
			k.found("worker "+w.WorkerID, "its status is "+string(w.Status))
		}
		if w.HeartbeatStats != nil && !w.HeartbeatStats.IsValid(rawjson.Options()) {
			k.found("worker "+w.WorkerID, "its heartbeat_stats are not a JSON document")
		}
		return nil
	})
}

func (k *checker) spans(ctx context.Context) error {
	const all = `SELECT s.ordinal, s.span_id, s.codec, s.size, s.crc, s.payload, s.stream FROM spans AS s ORDER BY s.ordinal`
	return k.c.query(ctx, all, nil, func(r row) error {
		if _, err := k.d.codec.decode(r.int(2), r.int(3), r.int(4), r.bytes(5)); err != nil {
			where, nameErr := k.spanName(ctx, r.int(6), r.text(1))
			if nameErr != nil {
				return nameErr
			}
			k.damaged(where, err, "the span is lost")
		}
		return nil
	})
}

// spanName names a span by its stream. No index serves this query: only damage needs
// it.
func (k *checker) spanName(ctx context.Context, stream int64, spanID string) (string, error) {
	where := "span " + spanID + " of no attempt"
	err := k.c.query(ctx, `SELECT r.rollout_id, a.attempt_id FROM attempts AS a JOIN rollouts AS r ON r.ordinal = a.rollout WHERE a.stream = ?`, []any{stream},
		func(r row) error {
			where = "span " + r.text(0) + "/" + r.text(1) + "/" + spanID
			return nil
		})
	return where, err
}

func (k *checker) resources(ctx context.Context) error {
	return k.c.query(ctx, "SELECT "+resourcesColumns+" FROM resources AS u", nil, func(r row) error {
		if _, err := k.d.scanResources(r); err != nil {
			k.damaged("resources "+r.text(1), err, "the bundle is lost")
		}
		return nil
	})
}

func (k *checker) keys(ctx context.Context) error {
	return k.c.query(ctx, "SELECT "+keyColumns+" FROM keys", nil, func(r row) error {
		if _, err := scanKey(r); err != nil {
			k.damaged("idempotency record "+r.text(0), err, "a repeat of its write fails")
		}
		return nil
	})
}

func (k *checker) events(ctx context.Context) error {
	next := int64(0)
	return k.c.query(ctx, "SELECT first, count, events FROM events ORDER BY first", nil, func(r row) error {
		var events []agl.Event
		where := "events from " + itoa(r.int(0)) + " on"
		if err := rawjson.Unmarshal(r.bytes(2), &events); err != nil {
			k.damaged(where, err, "they are lost")
		} else if int64(len(events)) != r.int(1) || next != 0 && r.int(0) != next {
			k.found(where, "some of them, or before them, are missing")
		}
		next = r.int(0) + r.int(1)
		return nil
	})
}

// consistency looks for references to missing or wrong rows.
func (k *checker) consistency(ctx context.Context) error {
	for _, rule := range []struct{ sql, where, what string }{
		{
			`SELECT rollout_id FROM rollouts AS r WHERE latest IS NOT (SELECT max(ordinal) FROM attempts AS a WHERE a.rollout = r.ordinal)`,
			"rollout ", "it names the wrong attempt as its latest",
		},
		{
			`SELECT rollout_id FROM rollouts AS r WHERE holds <> EXISTS (SELECT 1 FROM attempts AS a WHERE a.rollout = r.ordinal AND a.spans > 0)`,
			"rollout ", "its mark of having spans is wrong",
		},
		{
			`SELECT max(rollout_id) FROM rollouts WHERE place IS NOT NULL GROUP BY place HAVING count(*) > 1`,
			"rollout ", "it shares its place in the queue with other rollouts",
		},
		{
			`SELECT b.rollout FROM bodies AS b WHERE NOT EXISTS (SELECT 1 FROM rollouts AS r WHERE r.ordinal = b.rollout)`,
			"the task of rollout number ", "its rollout is missing",
		},
		{
			// Spans that arrive after an eviction are never read.
			`SELECT s.span_id FROM spans AS s WHERE s.base IS NOT NULL
				AND s.stream IN (SELECT a.stream FROM attempts AS a JOIN rollouts AS r ON r.ordinal = a.rollout WHERE r.evicted = 0)
				AND NOT EXISTS (SELECT 1 FROM spans AS b WHERE b.stream = s.stream AND b.span_id = s.base AND b.ordinal < s.ordinal)`,
			"span ", "the span that it continues is missing; the span is lost",
		},
		{
			`SELECT DISTINCT s.stream FROM spans AS s WHERE s.stream NOT IN (SELECT stream FROM attempts) AND s.stream NOT IN (SELECT stream FROM garbage)`,
			"spans of stream ", "their attempt is missing",
		},
		{
			`SELECT b.stream FROM span_buckets AS b WHERE b.spans <> (SELECT count(*) FROM spans AS s WHERE s.stream = b.stream AND s.sequence_id >> 10 = b.bucket)
				AND b.stream NOT IN (SELECT stream FROM garbage) GROUP BY b.stream`,
			"spans of stream ", "their counts by sequence id do not add up, pages of them may be wrong",
		},
		{
			`SELECT bucket FROM rollout_buckets AS b WHERE rollouts <> (SELECT count(*) FROM rollouts AS r WHERE r.ordinal BETWEEN b.bucket << 10 AND (b.bucket << 10) + 1023)`,
			"rollouts of bucket ", "their count does not add up, pages of them may be wrong",
		},
		{
			unfinishedImport,
			"import ", "the database holds a part of an export; run agl db import with that export again",
		},
	} {
		err := k.c.query(ctx, rule.sql, nil, func(r row) error {
			id := r.text(0)
			if id == "" {
				id = itoa(r.int(0))
			}
			k.found(rule.where+id, rule.what)
			return nil
		})
		if err := k.survive(err); err != nil {
			return err
		}
	}
	return nil
}

// counts compares the totals of the state with the rows.
func (k *checker) counts(ctx context.Context) error {
	s, err := readState(ctx, k.c)
	if err != nil {
		return err
	}
	for _, count := range []struct {
		what string
		sql  string
		says int64
	}{
		{"rollouts", "SELECT count(*) FROM rollouts", s.rollouts},
		{"attempts", "SELECT count(*) FROM attempts", s.attempts},
		{"spans", "SELECT coalesce(sum(spans), 0) FROM attempts", s.spans},
		{"bytes of spans", "SELECT coalesce(sum(span_bytes), 0) FROM attempts", s.spanBytes},
		{"resources", "SELECT count(*) FROM resources", s.resources},
		{"workers", "SELECT count(*) FROM workers", s.workers},
	} {
		n, err := k.c.number(ctx, count.sql)
		if err := k.survive(err); err != nil {
			return err
		}
		if err == nil && n != count.says {
			k.found("number of "+count.what, "there are "+itoa(n)+", and should be "+itoa(count.says))
		}
	}
	return nil
}
