package sqlite_test

import (
	"database/sql"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/sqlite"
)

// wantError checks an error's kind and what its message must say.
func wantError(t *testing.T, err, kind error, parts ...string) {
	t.Helper()
	if !errors.Is(err, kind) {
		t.Fatalf("got error %v, want %v", err, kind)
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
}

// errInternal is the kind of an error that is a fault of ours, or of the disk.
var errInternal = &agl.Error{Code: agl.CodeInternal}

// edit changes a file behind the driver.
func edit(t *testing.T, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range statements {
		if _, err := db.ExecContext(t.Context(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

// apply commits changes in a batch of their own.
func apply(t testing.TB, d driver.Driver, c driver.Changes) error {
	t.Helper()
	b, err := d.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Discard()
	if c.Now == 0 {
		c.Now = 1_760_000_000
	}
	return b.Apply(t.Context(), &c)
}

func mustApply(t testing.TB, d driver.Driver, c driver.Changes) {
	t.Helper()
	if err := apply(t, d, c); err != nil {
		t.Fatal(err)
	}
}

func load(t testing.TB, d driver.Driver, want driver.LoadParams) *driver.Loaded {
	t.Helper()
	b, err := d.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Discard()
	var got driver.Loaded
	if err := b.Load(t.Context(), &want, &got); err != nil {
		t.Fatal(err)
	}
	return &got
}

func newRollout(id string, status agl.RolloutStatus) driver.RolloutChange {
	return driver.RolloutChange{New: true, Rollout: &agl.Rollout{
		RolloutID: id, Input: jsontext.Value(`{"id":"` + id + `"}`), StartTime: 1, Status: status,
		Config: agl.RolloutConfig{MaxAttempts: 1}, Metadata: jsontext.Value(`{}`),
	}}
}

func newAttempt(rolloutID string, n int, status agl.AttemptStatus) driver.AttemptChange {
	return driver.AttemptChange{New: true, Attempt: &agl.Attempt{
		RolloutID: rolloutID, AttemptID: "at-" + string(rune('0'+n)), SequenceID: n, StartTime: 2, Status: status,
	}}
}

func newSpan(a driver.AttemptChange, id string, sequence int64) driver.SpanRecord {
	s := agl.Span{RolloutID: a.Attempt.RolloutID, AttemptID: a.Attempt.AttemptID, SpanID: id, SequenceID: sequence, Name: id}
	return driver.SpanRecord{
		SpanKey:    driver.SpanKey{RolloutID: s.RolloutID, AttemptID: s.AttemptID, SpanID: id},
		SequenceID: sequence, Name: id, Payload: s.AppendJSON(nil),
	}
}

// TestLibc checks the pin that modernc.org/sqlite asks for: another version of
// its C library may corrupt memory. The build information of a test binary names
// no modules, so the go command is asked.
func TestLibc(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), "go", "list", "-m", "modernc.org/sqlite", "modernc.org/libc").CombinedOutput()
	if want := "modernc.org/sqlite v1.60.1\nmodernc.org/libc v1.77.1\n"; err != nil || string(out) != want {
		t.Errorf("got %q, error %v, want %q", out, err, want)
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	for _, config := range []sqlite.Config{
		{}, {Path: path, Sync: 7}, {Path: path, CacheBytes: -1}, {Path: path, Lifetimes: driver.Lifetimes{MaxEvents: -1}}, {Path: path, Lifetimes: driver.Lifetimes{EventTTL: -1}},
		{Path: path, Lifetimes: driver.Lifetimes{IdempotencyTTL: -1}}, {Path: filepath.Dir(path)}, {Path: filepath.Join(path, "none", "x.db")},
	} {
		_, err := sqlite.Open(t.Context(), config)
		wantError(t, err, agl.ErrInvalid)
	}
	for _, s := range []sqlite.Sync{sqlite.SyncFull, sqlite.SyncNormal} {
		if got, err := sqlite.ParseSync(s.String()); err != nil || got != s {
			t.Errorf("%s parses as %v, error %v", s, got, err)
		}
	}
	_, err := sqlite.ParseSync("off")
	wantError(t, err, agl.ErrInvalid, `"off"`, "full or normal")
}

func TestOddNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a b.db", "100%41.db", "ü ß.db", "a&mode=ro.db", "a+b;c.db"} {
		path := filepath.Join(t.TempDir(), name)
		d := open(t, sqlite.Config{Path: path})
		mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("r", agl.RolloutQueuing)}})
		closeDriver(t, d)
		if info, err := os.Stat(path); err != nil || info.Size() == 0 {
			t.Errorf("%q: %v, want a file with something in it", name, err)
		}
	}
}

// TestOneServer checks the lock, and that it ends with its owner.
func TestOneServer(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	d := open(t, sqlite.Config{Path: path})
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	wantError(t, err, agl.ErrIllegalState, path, "in use by another process")
	if err := d.Ping(t.Context()); err != nil {
		t.Errorf("the first server is not well any more: %v", err)
	}
	closeDriver(t, d)
	closeDriver(t, open(t, sqlite.Config{Path: path}))
}

func TestForeignFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte(strings.Repeat("not a database\n", 1000)), 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: text})
	wantError(t, err, errInternal, text, "not an SQLite database", "agl db check")
	other := filepath.Join(dir, "other")
	edit(t, other, "CREATE TABLE t (x)")
	_, err = sqlite.Open(t.Context(), sqlite.Config{Path: other})
	wantError(t, err, agl.ErrIllegalState, other, "another program")
}

// TestOlderSchema opens a file of the version before spans had bases and rollouts labels.
func TestOlderSchema(t *testing.T) {
	t.Parallel()
	path := populated(t)
	payloads := func() (out []string) {
		d := open(t, sqlite.Config{Path: path})
		defer closeDriver(t, d)
		for r, err := range d.Export(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if r.Span != nil {
				out = append(out, string(r.Span.Payload)+r.Span.Base)
			}
		}
		return out
	}
	want := payloads()
	labelled := func() int {
		d := open(t, sqlite.Config{Path: path})
		defer closeDriver(t, d)
		page, err := d.QueryRollouts(t.Context(), agl.QueryRolloutsParams{Labels: []agl.Label{{Name: "run", Value: "r"}}, Paging: agl.Paging{Limit: -1}})
		if err != nil {
			t.Fatal(err)
		}
		return page.Total
	}
	d := open(t, sqlite.Config{Path: path})
	tagged := newRollout("tagged", agl.RolloutQueuing)
	tagged.Rollout.Metadata = []byte(`{"run":"r"}`)
	mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{tagged}})
	closeDriver(t, d)
	edit(t, path, `ALTER TABLE spans DROP COLUMN base; DROP INDEX rollouts_reward; ALTER TABLE rollouts DROP COLUMN reward; DROP TABLE labels;
		ALTER TABLE attempts DROP COLUMN reward; ALTER TABLE attempts DROP COLUMN reward_priority; ALTER TABLE attempts DROP COLUMN reward_sequence;
		PRAGMA user_version = 3`)
	if got := payloads(); len(got) == 0 || !slices.Equal(got, want) {
		t.Errorf("after the migration the spans are %.200q, want %.200q", got, want)
	}
	if n := labelled(); n != 1 {
		t.Errorf("after the migration %d rollouts have the label, want 1", n)
	}
}

func TestNewerSchema(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	closeDriver(t, open(t, sqlite.Config{Path: path}))
	edit(t, path, "PRAGMA user_version = 99")
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	wantError(t, err, agl.ErrIllegalState, path, "schema version 99", "up to 5")
	db, err := sqlite.OpenDatabase(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	status, err := db.Status(t.Context())
	if err != nil || status.SchemaVersion != 99 || status.KnownVersion != 5 {
		t.Errorf("status %+v, error %v, want version 99", status, err)
	}
	_, _, err = db.Migrate(t.Context())
	wantError(t, err, agl.ErrIllegalState, "99")
}

// TestEmptied checks that an emptied file is not mistaken for a new one.
func TestEmptied(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	closeDriver(t, open(t, sqlite.Config{Path: path}))
	if err := os.Truncate(path, 0); err != nil {
		t.Fatal(err)
	}
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	wantError(t, err, errInternal, path, "it is empty")
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	closeDriver(t, open(t, sqlite.Config{Path: path}))
}

func TestReadOnlyDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o500); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Chmod(dir, 0o700) })
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: filepath.Join(dir, "agl.db")})
	wantError(t, err, agl.ErrUnavailable, dir, "must be writable")
}

// TestReadOnlyFilesBeside: what `agl db check` leaves beside a file that it may only read keeps out who may write the file.
func TestReadOnlyFilesBeside(t *testing.T) {
	t.Parallel()
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere")
	}
	path := filepath.Join(t.TempDir(), "agl.db")
	closeDriver(t, open(t, sqlite.Config{Path: path}))
	if err := os.Chmod(path, 0o400); err != nil {
		t.Fatal(err)
	}
	db, err := sqlite.OpenDatabase(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Status(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Close(), os.Chmod(path, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err = sqlite.Open(t.Context(), sqlite.Config{Path: path})
	wantError(t, err, agl.ErrUnavailable, path+"-wal", path+"-shm", "must be writable")
}

// crash returns a copy of the file as it would be after a kill of the process.
func crash(t *testing.T, path string) string {
	t.Helper()
	to := filepath.Join(t.TempDir(), "agl.db")
	for _, suffix := range []string{"", "-wal"} {
		data, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to+suffix, data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return to
}

// TestSequenceBlocks checks that ids are given out without a commit, are on disk after
// Close, and are never given out twice after a crash.
func TestSequenceBlocks(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "agl.db")
	d := open(t, sqlite.Config{Path: path})
	last := func(d driver.Driver, id string) int64 {
		t.Helper()
		for _, s := range load(t, d, driver.LoadParams{Sequences: []string{id}}).Sequences {
			return s.Last
		}
		return 0
	}
	reserve := func(d driver.Driver, id string, n int64) {
		t.Helper()
		mustApply(t, d, driver.Changes{Sequences: []driver.Sequence{{RolloutID: id, Last: last(d, id) + n}}})
	}
	mustApply(t, d, driver.Changes{
		Rollouts: []driver.RolloutChange{newRollout("live", agl.RolloutRunning), newRollout("queued", agl.RolloutQueuing)},
		Attempts: []driver.AttemptChange{newAttempt("live", 1, agl.AttemptRunning)},
	})
	size := func() int64 {
		info, err := os.Stat(path + "-wal")
		if err != nil {
			t.Fatal(err)
		}
		return info.Size()
	}
	before := size()
	for range 40 {
		reserve(d, "live", 1)
	}
	if after := size(); after != before {
		t.Errorf("40 reservations made the log grow from %d to %d bytes", before, after)
	}
	crashed := open(t, sqlite.Config{Path: crash(t, path)})
	if got := last(crashed, "live"); got < 40 || got > 40+64 {
		t.Errorf("after a crash the last id is %d, want 40 or a little more", got)
	}
	if got := last(crashed, "queued"); got != 0 {
		t.Errorf("the last id of a rollout that never ran is %d, want none", got)
	}
	reserve(crashed, "live", 1)
	closeDriver(t, crashed)
	for range 100 {
		reserve(d, "live", 1)
	}
	reserve(d, "ghost", 3)
	closeDriver(t, d)
	d = open(t, sqlite.Config{Path: path})
	if got := last(d, "live"); got != 140 {
		t.Errorf("after a restart the last id is %d, want 140", got)
	}
	if got := last(d, "ghost"); got != 3 {
		t.Errorf("after a restart the last id of an unknown rollout is %d, want 3", got)
	}
	// A rollout with that id continues the sequence.
	mustApply(t, d, driver.Changes{Rollouts: []driver.RolloutChange{newRollout("ghost", agl.RolloutQueuing)}})
	if got := last(d, "ghost"); got != 3 {
		t.Errorf("the last id of the rollout that came to be is %d, want 3", got)
	}
	closeDriver(t, d)
}

// TestEventsOfAnotherFile checks that events of another file, such as a backup, are
// not accepted, and that a restart leaves no gap.
func TestEventsOfAnotherFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	config := sqlite.Config{Path: filepath.Join(dir, "a.db")}
	d := open(t, config)
	event := driver.Changes{Events: []agl.Event{{Kind: agl.EventQueue, Status: "closed"}, {Kind: agl.EventQueue, Status: "open"}}}
	mustApply(t, d, event)
	list, err := d.Events(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	seen := list.Last
	db, err := sqlite.OpenDatabase(t.Context(), config.Path)
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Backup(t.Context(), filepath.Join(dir, "b.db")); err != nil {
		t.Fatal(err)
	}
	closeDriver(t, d)
	for name, reset := range map[string]bool{"a.db": false, "b.db": true, "c.db": true} {
		d := open(t, sqlite.Config{Path: filepath.Join(dir, name)})
		mustApply(t, d, event)
		mustApply(t, d, event)
		list, err := d.Events(t.Context(), seen, 10)
		if err != nil || list.Reset != reset || !reset && (len(list.Events) != 4 || list.Events[3].ID != list.Last) {
			t.Errorf("%s: events %+v, error %v, want reset %v", name, list, err, reset)
		}
		closeDriver(t, d)
	}
}

// TestForgetting checks that each commit deletes a few expired events and keys.
func TestForgetting(t *testing.T) {
	t.Parallel()
	d := open(t, sqlite.Config{Lifetimes: driver.Lifetimes{MaxEvents: 10}, Sync: sqlite.SyncNormal})
	begin, err := d.Events(t.Context(), "", 1)
	if err != nil {
		t.Fatal(err)
	}
	now := agl.Timestamp(1_760_000_000)
	commit := func(c driver.Changes) {
		t.Helper()
		c.Now = now
		c.Events = []agl.Event{{Kind: agl.EventQueue, Status: "open"}}
		mustApply(t, d, c)
	}
	for i := range 30 {
		commit(driver.Changes{Keys: []driver.IdempotencyRecord{{Scope: "op " + string(rune('a'+i)), CreateTime: now}}})
	}
	list, err := d.Events(t.Context(), begin.Last, 100)
	if err != nil || !list.Reset {
		t.Errorf("events %+v, error %v, want a reset", list, err)
	}
	known := func() int {
		return len(load(t, d, driver.LoadParams{Now: now, Keys: []string{"op a", "op b", "op z"}}).Keys)
	}
	if got := known(); got != 3 {
		t.Errorf("%d keys are known, want 3", got)
	}
	now += 25 * 3600
	if got := known(); got != 0 {
		t.Errorf("%d keys are known after a day, want none", got)
	}
	for range 5 {
		commit(driver.Changes{})
	}
	rows := 0
	for record, err := range d.Export(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if record.Key != nil {
			rows++
		}
	}
	if rows != 0 {
		t.Errorf("%d expired keys are still kept", rows)
	}
	closeDriver(t, d)
}
