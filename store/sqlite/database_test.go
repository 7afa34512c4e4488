package sqlite_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/sqlite"
)

func openDatabase(t *testing.T, path string) *sqlite.Database {
	t.Helper()
	db, err := sqlite.OpenDatabase(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

func TestDatabaseWithoutFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	db := openDatabase(t, path)
	_, err := db.Status(t.Context())
	wantError(t, err, agl.ErrNotFound, path)
	wantError(t, db.Check(t.Context(), nil), agl.ErrNotFound, path)
	wantError(t, db.Vacuum(t.Context()), agl.ErrNotFound, path)
	wantError(t, db.Backup(t.Context(), path+".bak"), agl.ErrNotFound, path)
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a file came to be, error %v", err)
	}
	from, to, err := db.Migrate(t.Context())
	if err != nil || from != 0 || to != 5 {
		t.Errorf("migrated from %d to %d, error %v, want from 0 to 5", from, to, err)
	}
	from, to, err = db.Migrate(t.Context())
	if err != nil || from != 5 || to != 5 {
		t.Errorf("migrated again from %d to %d, error %v, want 5 and 5", from, to, err)
	}
}

// TestDatabaseBesideServer runs the operations that work beside a server, and checks
// that the others are refused.
func TestDatabaseBesideServer(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "agl.db")
	d := open(t, sqlite.Config{Path: path, Sync: sqlite.SyncNormal})
	populate(t, d)
	db := openDatabase(t, path)
	status, err := db.Status(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if !status.InUse || status.SchemaVersion != 5 || status.KnownVersion != 5 || status.Bytes < 4096 || status.Location != path ||
		!strings.HasPrefix(status.Name, "sqlite 3.") || status.Contents.TotalSpans != 4 || status.Contents.TotalRollouts != 3 {
		t.Errorf("got status %+v", status)
	}
	wantError(t, db.Vacuum(t.Context()), agl.ErrIllegalState, path, "in use by another process")
	_, _, err = db.Migrate(t.Context())
	wantError(t, err, agl.ErrIllegalState, path, "in use by another process")
	if found := problems(t, path); len(found) > 0 {
		t.Errorf("the check has found %q", found)
	}
	copied := filepath.Join(dir, "copy.db")
	if err := db.Backup(t.Context(), copied); err != nil {
		t.Fatal(err)
	}
	wantError(t, db.Backup(t.Context(), copied), agl.ErrConflict, copied, "exists")
	wantError(t, db.Backup(t.Context(), filepath.Join(dir, "none", "x.db")), agl.ErrInvalid, "none", "does not exist")
	mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("later", agl.RolloutQueuing)}})
	closeDriver(t, d)
	if status, err = db.Status(t.Context()); err != nil || status.InUse {
		t.Errorf("status %+v, error %v, want a file that is not in use", status, err)
	}
	if found := problems(t, copied); len(found) > 0 {
		t.Errorf("the check has found %q in the backup", found)
	}
	restored := open(t, sqlite.Config{Path: copied})
	page, err := restored.QueryRollouts(t.Context(), agl.QueryRolloutsParams{Paging: agl.Paging{Limit: -1}})
	if err != nil || page.Total != 3 {
		t.Errorf("%d rollouts, error %v, want those of the moment of the backup", page.Total, err)
	}
	closeDriver(t, restored)
	left, err := filepath.Glob(filepath.Join(dir, "*partial*"))
	if err != nil || len(left) > 0 {
		t.Errorf("%q is left, error %v", left, err)
	}
}

// TestBackupInterrupted ends backups while they run. Nothing of them is left.
func TestBackupInterrupted(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	d := open(t, sqlite.Config{Path: path, Sync: sqlite.SyncNormal})
	a := newAttempt("r", 1, agl.AttemptRunning)
	text := rand.Text()
	changes := driver.Changes{Rollouts: []driver.RolloutChange{newRollout("r", agl.RolloutRunning)}, Attempts: []driver.AttemptChange{a}}
	for n := range int64(40) {
		span := newSpan(a, fmt.Sprint(n), n)
		span.Payload = jsontext.Value(`"` + strings.Repeat(text+fmt.Sprint(n), 40_000) + `"`)
		changes.Spans = append(changes.Spans, span)
	}
	mustApply(t, d, changes)
	closeDriver(t, d)
	db := openDatabase(t, path)
	dir := t.TempDir()
	for range 50 { // a backup may be over before it is seen
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- db.Backup(ctx, filepath.Join(dir, "copy.db")) }()
		var err error
		for ended := false; !ended; {
			select {
			case err = <-done:
				ended = true
			default:
				if begun(t, dir) {
					cancel()
				}
				runtime.Gosched()
			}
		}
		cancel()
		left, readErr := os.ReadDir(dir)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if errors.Is(err, context.Canceled) {
			if len(left) > 0 {
				t.Errorf("%v is left", left)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(filepath.Join(dir, "copy.db")); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("no backup ended with its context")
}

// begun reports whether a backup in dir has written something.
func begun(t *testing.T, dir string) bool {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.partial-*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if info, err := os.Stat(name); err == nil && info.Size() > 0 {
			return true
		}
	}
	return false
}

// TestLargeDeletion checks that many spans disappear at once for readers, are deleted
// in small steps, and that vacuum returns their space.
func TestLargeDeletion(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	for _, how := range []string{"delete", "evict"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "agl.db")
			d := open(t, sqlite.Config{Path: path, Sync: sqlite.SyncNormal})
			a := newAttempt("r", 1, agl.AttemptSucceeded)
			c := driver.Changes{Rollouts: []driver.RolloutChange{newRollout("r", agl.RolloutSucceeded)}, Attempts: []driver.AttemptChange{a}}
			const n = 9000
			for i := range n {
				s := newSpan(a, fmt.Sprintf("s%d", i), int64(i))
				s.Payload = jsontext.Value(`"` + strings.Repeat("x", 200) + `"`)
				c.Spans = append(c.Spans, s)
			}
			mustApply(t, d, c)
			evictable, err := d.Oldest(t.Context(), driver.RemovableSpans, 10)
			if err != nil || len(evictable.Items) != 1 || evictable.Items[0].SpanBytes != n*202 || evictable.SpanBytes != n*202 {
				t.Fatalf("evictable: %+v, error %v", evictable, err)
			}
			gone := driver.Changes{DeletedRollouts: []string{"r"}}
			if how == "evict" {
				gone = driver.Changes{EvictedRollouts: []string{"r"}}
			}
			mustApply(t, d, gone)
			stats, err := d.Statistics(t.Context())
			if err != nil || stats.TotalSpans != 0 {
				t.Errorf("%d spans, error %v, want none", stats.TotalSpans, err)
			}
			if evictable, err = d.Oldest(t.Context(), driver.RemovableSpans, 10); err != nil || len(evictable.Items) != 0 || evictable.SpanBytes != 0 {
				t.Errorf("evictable: %+v, error %v, want nothing", evictable, err)
			}
			if how == "evict" {
				// A late span with the same id is a new span.
				late := newSpan(a, "s1", 1)
				if got := load(t, d, driver.LoadParams{Spans: []driver.SpanKey{late.SpanKey}}).Spans; len(got) != 0 {
					t.Errorf("an evicted span is still there")
				}
				mustApply(t, d, driver.Changes{Spans: []driver.SpanRecord{late}})
				_, err := d.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: "r", Paging: agl.Paging{Limit: -1}})
				wantError(t, err, agl.ErrEvicted, "r")
			}
			if found := problems(t, path); len(found) > 0 {
				t.Errorf("while spans are being removed, the check has found %q", found)
			}
			closeDriver(t, d)
			db := openDatabase(t, path)
			before, err := db.Status(t.Context())
			if err != nil || before.FreeBytes == 0 {
				t.Fatalf("status %+v, error %v, want free space", before, err)
			}
			if err := db.Vacuum(t.Context()); err != nil {
				t.Fatal(err)
			}
			after, err := db.Status(t.Context())
			if err != nil || after.FreeBytes != 0 || after.Bytes > before.Bytes/4 {
				t.Errorf("status %+v, error %v, want far less than %d bytes", after, err, before.Bytes)
			}
			if found := problems(t, path); len(found) > 0 {
				t.Errorf("the check has found %q", found)
			}
		})
	}
}
