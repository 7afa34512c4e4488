package sqlite_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/sqlite"
)

// populated creates a file with records of every kind, and returns its name.
func populated(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "agl.db")
	d := open(t, sqlite.Config{Path: path, Sync: sqlite.SyncNormal})
	populate(t, d)
	closeDriver(t, d)
	return path
}

func populate(t *testing.T, d driver.Driver) {
	t.Helper()
	first, second := newAttempt("done", 1, agl.AttemptFailed), newAttempt("done", 2, agl.AttemptSucceeded)
	long := newSpan(second, "long", 4000)
	long.Payload = []byte(`{"text":"` + strings.Repeat("a text that repeats itself ", 1000) + `"}`)
	done := newRollout("done", agl.RolloutSucceeded)
	done.Rollout.EndTime = agl.Some(agl.Timestamp(5))
	mustApply(t, d, driver.Changes{
		Rollouts: []driver.RolloutChange{done, newRollout("queued", agl.RolloutQueuing), newRollout("again", agl.RolloutRequeuing)},
		Attempts: []driver.AttemptChange{first, second},
		Spans:    []driver.SpanRecord{newSpan(first, "a", 1), newSpan(second, "b", 2), newSpan(second, "c", 3), long},
		Workers:  []*agl.Worker{{WorkerID: "w", Status: agl.WorkerIdle}},
		Resources: []*agl.ResourcesUpdate{{ResourcesID: "u", Version: 1, Resources: agl.Resources{
			{Name: "p", Resource: agl.PromptTemplate{Template: "t", Engine: agl.PromptJinja}},
		}}},
		Keys:      []driver.IdempotencyRecord{{Scope: "op k", Made: []driver.AttemptKey{{RolloutID: "done", AttemptID: "at-1"}}, CreateTime: 1_760_000_000}},
		Events:    []agl.Event{{Kind: agl.EventQueue, Status: "open"}},
		Sequences: []driver.Sequence{{RolloutID: "ghost", Last: 3}},
		Documents: []*agl.Document{{Kind: "run", ID: "r", Version: 1, Body: []byte(`{}`)}},
	})
	mustApply(t, d, driver.Changes{Events: []agl.Event{{Kind: agl.EventQueue, Status: "closed"}}})
}

func problems(t *testing.T, path string) []string {
	t.Helper()
	db, err := sqlite.OpenDatabase(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	if err := db.Check(t.Context(), func(p driver.Problem) { out = append(out, p.Where+": "+p.What) }); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestDamagedPayload checks that a damaged document is refused by name, and nothing
// else is.
func TestDamagedPayload(t *testing.T) {
	t.Parallel()
	for name, statement := range map[string]string{
		"b":    "UPDATE spans SET payload = replace(payload, 'UNSET', 'ERROR') WHERE span_id = 'b'",
		"c":    "UPDATE spans SET payload = substr(payload, 2) WHERE span_id = 'c'",
		"long": "UPDATE spans SET payload = zeroblob(length(payload)) WHERE span_id = 'long'",
		"a":    "UPDATE spans SET codec = 7 WHERE span_id = 'a'",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := populated(t)
			edit(t, path, statement)
			d := open(t, sqlite.Config{Path: path})
			attempt := "at-2"
			if name == "a" {
				attempt = "at-1"
			}
			query := func(p agl.QuerySpansParams) error {
				p.RolloutID, p.Limit = "done", -1
				_, err := d.QuerySpans(t.Context(), p)
				return err
			}
			for _, p := range []agl.QuerySpansParams{{}, {SpanID: name}, {AttemptID: attempt}, {SpanIDContains: name, Paging: agl.Paging{SortBy: "attempt_id"}}} {
				wantError(t, query(p), errInternal, path, "span done/"+attempt+"/"+name, "agl db check")
			}
			other := map[string]string{"at-1": "at-2", "at-2": "at-1"}[attempt]
			if err := query(agl.QuerySpansParams{AttemptID: other}); err != nil {
				t.Errorf("the spans of another attempt are refused too: %v", err)
			}
			if found := problems(t, path); len(found) != 1 || !strings.HasPrefix(found[0], "span done/"+attempt+"/"+name+": ") {
				t.Errorf("the check has found %q, want that span", found)
			}
			closeDriver(t, d)
		})
	}
}

// TestCheck breaks one thing after another.
func TestCheck(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, statement, want string }{
		{"nothing", "SELECT 1", ""},
		{"task", "UPDATE bodies SET input = '2' WHERE rollout = 1", "rollout done: its checksum does not match; its task"},
		{"no task", "DELETE FROM bodies WHERE rollout = 2", "rollout queued: its task is missing"},
		{"resources", "UPDATE resources SET crc = crc + 1", "resources u: its checksum does not match"},
		{"status", "UPDATE rollouts SET status = 'lost' WHERE rollout_id = 'done'", "rollout done: its status is lost"},
		{"queued without a place", "UPDATE rollouts SET place = NULL WHERE rollout_id = 'queued'", "rollout queued: its status is queuing, which its place"},
		{"a place too much", "UPDATE rollouts SET place = 77 WHERE rollout_id = 'done'", "rollout done: its status is succeeded, which its place"},
		{"one place for two", "UPDATE rollouts SET place = 1 WHERE place IS NOT NULL", "rollout queued: it shares its place in the queue"},
		{"latest", "UPDATE rollouts SET latest = 1 WHERE rollout_id = 'done'", "rollout done: it names the wrong attempt as its latest"},
		{"attempt without rollout", "UPDATE attempts SET rollout = 99 WHERE ordinal = 1", "attempt at-1: its rollout is missing"},
		{"attempt status", "UPDATE attempts SET status = 'lost' WHERE ordinal = 1", "attempt done/at-1: its status is lost"},
		{"attempt metadata", "UPDATE attempts SET metadata = '{' WHERE ordinal = 1", "attempt done/at-1: its metadata is not a JSON document"},
		{"worker status", "UPDATE workers SET status = 'lost'", "worker w: its status is lost"},
		{"worker stats", "UPDATE workers SET heartbeat_stats = '['", "worker w: its heartbeat_stats are not a JSON document"},
		{"missing span", "DELETE FROM spans WHERE span_id = 'a'", "attempt done/at-1: it has 0 spans of 0 bytes, and should have 1"},
		{"orphans", "UPDATE spans SET stream = 99 WHERE span_id = 'a'", "spans of stream 99: their attempt is missing"},
		{"base", "UPDATE spans SET base = 'gone' WHERE span_id = 'a'", "span a: the span that it continues is missing"},
		{"span counts", "UPDATE span_buckets SET spans = 7", "spans of stream 2: their counts"},
		{"rollout counts", "UPDATE rollout_buckets SET rollouts = 7", "rollouts of bucket 0: their count"},
		{"rollouts", "UPDATE state SET rollouts = 7", "number of rollouts: there are 3, and should be 7"},
		{"span bytes", "UPDATE state SET span_bytes = 7", "number of bytes of spans: there are"},
		{"holds", "UPDATE rollouts SET holds = 0", "rollout done: its mark of having spans"},
		{"document", "UPDATE documents SET body = '[1]'", "run r: its checksum does not match; the document is lost"},
		{"document version", "UPDATE documents SET version = 0", "run r: its version is 0"},
		{"import", "UPDATE documents SET kind = 'import', id = 'unfinished'", "import unfinished: the database holds a part of an export"},
		{"key", "UPDATE keys SET made = '{'", "idempotency record op k: "},
		{"events", "UPDATE events SET events = '[' WHERE first = 1", "events from 1 on: "},
		{"gap", "UPDATE events SET first = 9 WHERE first = 2", "events from 9 on: some of them"},
		{"no state", "DELETE FROM state", "it has no state"},
		{"index", editSchema + "'end_time', 'holds') WHERE name = 'rollouts_finished'", "the definition of index rollouts_finished was changed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			path := populated(t)
			edit(t, path, tc.statement)
			found := problems(t, path)
			if tc.want == "" {
				if len(found) > 0 {
					t.Errorf("found %q, want nothing", found)
				}
				return
			}
			if !slices.ContainsFunc(found, func(p string) bool { return strings.Contains(p, tc.want) }) {
				t.Errorf("found %q, want %q", found, tc.want)
			}
		})
	}
}

// editSchema begins a statement that edits the definition of a table or an index.
const editSchema = "PRAGMA writable_schema = on; UPDATE sqlite_schema SET sql = replace(sql, "

// TestDamagedSchema checks that the file and the check are named if a statement no longer
// fits the tables, and that the check completes.
func TestDamagedSchema(t *testing.T) {
	t.Parallel()
	path := populated(t)
	edit(t, path, editSchema+"'latest INTEGER', 'lavest INTEGER') WHERE name = 'rollouts'")
	_, err := sqlite.Open(t.Context(), sqlite.Config{Path: path})
	wantError(t, err, errInternal, path, "agl db check", "no such column")
	if found := problems(t, path); !slices.Contains(found, "file "+path+": the definition of table rollouts was changed; what it holds may be read wrongly") {
		t.Errorf("the check has found %q, want the table", found)
	}
}

// TestDamagedPages overwrites pages of the file: every error names the file and the
// check, and the check itself completes.
func TestDamagedPages(t *testing.T) {
	t.Parallel()
	oneGoroutine(t)
	path := populated(t)
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	const page = 4096
	told := 0
	for at := page; at < len(data); at += page {
		broken := filepath.Join(t.TempDir(), "agl.db")
		bad := slices.Clone(data)
		for i := range 64 {
			bad[at+i] ^= 0xa5
		}
		if err := os.WriteFile(broken, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		if found := problems(t, broken); len(found) > 0 {
			told++
		}
		d, err := sqlite.Open(t.Context(), sqlite.Config{Path: broken})
		if err == nil {
			for _, e := range d.Export(t.Context()) {
				err = e
			}
			_ = d.Close(t.Context()) // it may fail or not
		}
		if err != nil {
			wantError(t, err, errInternal, broken, "agl db check")
		}
	}
	if pages := len(data)/page - 1; told < pages*3/4 {
		t.Errorf("the check has found something with %d of %d damaged pages", told, pages)
	}
}

// TestExportOfLostRows: an export lacks nothing without an error, also if SQLite notices no damage.
func TestExportOfLostRows(t *testing.T) {
	t.Parallel()
	for what, statement := range map[string]string{
		"3 rollouts, 2 attempts and 3 spans": "DELETE FROM spans WHERE span_id = 'b'",
		"3 rollouts, 1 attempts and 3 spans": "DELETE FROM attempts WHERE attempt_id = 'at-1'",
		"2 rollouts, 2 attempts and 4 spans": "DELETE FROM rollouts WHERE rollout_id = 'queued'",
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			path := populated(t)
			edit(t, path, statement)
			db, err := sqlite.OpenDatabase(t.Context(), path)
			if err != nil {
				t.Fatal(err)
			}
			var last error
			for _, err := range db.Export(t.Context()) {
				last = err
			}
			wantError(t, last, errInternal, path, "found "+what+", there should be 3, 2 and 4", "agl db check")
		})
	}
}
