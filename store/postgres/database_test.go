package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/postgres"
	"github.com/agl-go/agl/store/postgres/postgrestest"
)

// fresh returns the URL of a database without a schema. Its default collation is
// unusual, which must not matter.
func fresh(t *testing.T) string {
	t.Helper()
	s := server.Server(t)
	u, err := url.Parse(server.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	name := strings.TrimPrefix(u.Path, "/") + "_fresh"
	err = postgrestest.Execute(t.Context(), s.URL("postgres"), `CREATE DATABASE `+name+` TEMPLATE template0 LOCALE_PROVIDER icu ICU_LOCALE 'en-US'`)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.DropDatabase(context.WithoutCancel(t.Context()), s.URL(name)); err != nil {
			t.Error(err)
		}
	})
	return s.URL(name)
}

func openDatabase(t *testing.T, databaseURL string) *postgres.Database {
	t.Helper()
	d, err := postgres.OpenDatabase(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// TestMigrate opens a new database from several processes at once, and one of a newer
// program.
func TestMigrate(t *testing.T) {
	t.Parallel()
	databaseURL := fresh(t)
	d := openDatabase(t, databaseURL)
	status, err := d.Status(t.Context())
	if err != nil || status.SchemaVersion != 0 || status.KnownVersion < 1 || status.InUse || status.Contents != (agl.Statistics{}) {
		t.Errorf("status of an empty database: %+v, error %v", status, err)
	}
	var all sync.WaitGroup
	drivers := make([]*postgres.Driver, 4)
	for i := range drivers {
		all.Go(func() {
			var err error
			if drivers[i], err = postgres.Open(t.Context(), postgres.Config{URL: databaseURL}); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if t.Failed() {
		return
	}
	status, err = d.Status(t.Context())
	if err != nil || status.SchemaVersion != status.KnownVersion || !status.InUse || status.Bytes == 0 || !strings.HasPrefix(status.Name, "postgres 1") {
		t.Errorf("status of a database in use: %+v, error %v", status, err)
	}
	if err := d.Vacuum(t.Context()); !errors.Is(err, agl.ErrIllegalState) {
		t.Errorf("vacuum of a database in use: error %v", err)
	}
	for _, driver := range drivers {
		if err := driver.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
	// The server ends its side of a closed connection in its own time.
	for err = d.Vacuum(t.Context()); errors.Is(err, agl.ErrIllegalState); err = d.Vacuum(t.Context()) {
		if status, statusErr := d.Status(t.Context()); statusErr != nil {
			t.Fatalf("status %+v, error %v", status, statusErr)
		}
	}
	if err != nil {
		t.Errorf("vacuum: %v", err)
	}
	if from, to, err := d.Migrate(t.Context()); err != nil || from != to || to != status.KnownVersion {
		t.Errorf("migrated from %d to %d, error %v", from, to, err)
	}
	if err := d.Backup(t.Context(), "x"); !errors.Is(err, agl.ErrUnimplemented) || !strings.Contains(err.Error(), "pg_dump") {
		t.Errorf("backup: error %v", err)
	}
	if err := postgrestest.Execute(t.Context(), databaseURL, `INSERT INTO schema_version (version) VALUES (1000)`); err != nil {
		t.Fatal(err)
	}
	_, err = postgres.Open(t.Context(), postgres.Config{URL: databaseURL})
	if !errors.Is(err, agl.ErrIllegalState) || !strings.Contains(err.Error(), "version 1000") {
		t.Errorf("a schema of the future: error %v", err)
	}
}

// TestMigrationIsLogged: the server that has updated the schema says so, and the next one does not.
func TestMigrationIsLogged(t *testing.T) {
	t.Parallel()
	databaseURL := fresh(t)
	for _, want := range []int{1, 0} {
		var log strings.Builder
		d, err := postgres.Open(t.Context(), postgres.Config{URL: databaseURL, Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if n := strings.Count(log.String(), "migrated the database"); n != want {
			t.Errorf("logged %d times, want %d: %s", n, want, log.String())
		}
	}
}

// TestSecrets looks for the password in every error that a URL can cause.
func TestSecrets(t *testing.T) {
	t.Parallel()
	const password = "hunter2"
	for _, databaseURL := range []string{
		"postgres://agl:" + password + "@127.0.0.1:1/agl",
		"postgres://agl:" + password + "@127.0.0.1:1/agl?sslmode=nonsense",
		"postgres://agl:" + password + "@127.0.0.1:port/agl",
		"postgres://agl:" + password + "%zz@127.0.0.1:1/agl",
		"postgres://agl@127.0.0.1:1/agl?password=" + password + "&sslmode=disable",
		"host=127.0.0.1 port=1 user=agl password=" + password,
		"host=127.0.0.1 port=port password=" + password,
	} {
		_, err := postgres.Open(t.Context(), postgres.Config{URL: databaseURL, ConnectTimeout: time.Second})
		if err == nil {
			t.Fatalf("%s opens", databaseURL)
		}
		if strings.Contains(err.Error(), password) {
			t.Errorf("%s: the error shows the password: %v", databaseURL, err)
		}
		if code := agl.ErrorCode(err); code != agl.CodeUnavailable && code != agl.CodeInvalid {
			t.Errorf("%s: error %v is %s", databaseURL, err, code)
		}
	}
}

func TestConfig(t *testing.T) {
	t.Parallel()
	for _, config := range []postgres.Config{
		{},
		{URL: "postgres://x", MaxConns: 3},
		{URL: "postgres://x", Lifetimes: driver.Lifetimes{MaxEvents: -1}},
		{URL: "postgres://x", LockTimeout: -1},
		{URL: "postgres://x", PollInterval: 1},
	} {
		if _, err := postgres.Open(t.Context(), config); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%+v: error %v", config, err)
		}
	}
}

// awkward are texts that a database would rather not have.
func awkward() []string {
	return []string{"", " ", "a\x00b", "\x00", "é", "e\u0301", "\uFDEF", "\uFDEF\x00\uFDD0", "'; DROP TABLE x; --", `\x00`, "%_", "{}"}
}

// TestAwkwardTexts stores and finds ids that PostgreSQL cannot hold as they are.
func TestAwkwardTexts(t *testing.T) {
	t.Parallel()
	s := engine(t, postgres.Config{URL: fresh(t)})
	ctx := t.Context()
	r := start(t, s, agl.StartRolloutParams{})
	for i, id := range awkward() {
		if id == "" {
			continue
		}
		span := agl.Span{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: id, TraceID: id, Name: id, SequenceID: int64(i) + 1}
		for _, stored := range []int{1, 0} {
			added, err := s.AddSpans(ctx, agl.AddSpansParams{Spans: []agl.Span{span}})
			if err != nil || len(added.Stored) != stored {
				t.Errorf("%q: stored %d spans, want %d, error %v", id, len(added.Stored), stored, err)
			}
		}
		page, err := s.QuerySpansJSON(ctx, agl.QuerySpansParams{RolloutID: r.RolloutID, SpanID: id, NameContains: id})
		if err != nil || page.Total != 1 || string(page.Items[0]) != string(span.AppendJSON(nil)) {
			t.Errorf("%q: found %s, error %v", id, page.Items, err)
		}
		for range 2 {
			if _, err := s.UpdateWorker(ctx, agl.UpdateWorkerParams{WorkerID: id, HeartbeatStats: jsontext.Value(`{}`)}); err != nil {
				t.Errorf("%q: %v", id, err)
			}
		}
		w, err := s.GetWorker(ctx, agl.GetWorkerParams{WorkerID: id})
		if err != nil || w.WorkerID != id {
			t.Errorf("%q: worker %q, error %v", id, w.WorkerID, err)
		}
		if _, err := s.GetRollout(ctx, agl.GetRolloutParams{RolloutID: id}); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("%q: error %v", id, err)
		}
	}
	page, err := s.QueryWorkers(ctx, agl.QueryWorkersParams{Paging: agl.Paging{SortBy: "worker_id"}})
	if err != nil || page.Total != len(awkward())-1 {
		t.Errorf("%d workers, error %v", page.Total, err)
	}
}

// TestSortsByBytes checks that the database's collation has no effect.
func TestSortsByBytes(t *testing.T) {
	t.Parallel()
	s := engine(t, postgres.Config{URL: fresh(t)})
	want := []string{"A", "B", "_", "a", "b", "ä"}
	for _, id := range []string{"b", "ä", "A", "_", "B", "a"} {
		if _, err := s.UpdateWorker(t.Context(), agl.UpdateWorkerParams{WorkerID: id}); err != nil {
			t.Fatal(err)
		}
	}
	page, err := s.QueryWorkers(t.Context(), agl.QueryWorkersParams{Paging: agl.Paging{SortBy: "worker_id"}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for i := range page.Items {
		got = append(got, page.Items[i].WorkerID)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("workers by id (-want +got):\n%s", diff)
	}
}

// TestCheck breaks a database in every way that the check looks for.
func TestCheck(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	s := engine(t, postgres.Config{URL: databaseURL})
	r := start(t, s, agl.StartRolloutParams{WorkerID: agl.Some("w")})
	enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(2), IdempotencyKey: "k"})
	_, err := s.AddSpans(t.Context(), agl.AddSpansParams{IssueSequenceIDs: true, Spans: []agl.Span{
		{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SpanID: "s", TraceID: "t", Name: "n"},
	}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.AddResources(t.Context(), agl.AddResourcesParams{Resources: agl.Resources{}}); err != nil {
		t.Fatal(err)
	}
	if _, err := s.WriteDocuments(t.Context(), agl.WriteDocumentsParams{Writes: []agl.DocumentWrite{
		{Kind: "run", ID: "r", Body: jsontext.Value(`{}`)},
	}}); err != nil {
		t.Fatal(err)
	}
	d := openDatabase(t, databaseURL)
	check := func() (found []string) {
		err := d.Check(t.Context(), func(p driver.Problem) { found = append(found, p.Where+": "+p.What) })
		if err != nil {
			t.Error(err)
		}
		return found
	}
	if found := check(); len(found) > 0 {
		t.Errorf("a sound database: %q", found)
	}
	for _, tc := range []struct{ name, breaks, want string }{
		{"payload", `UPDATE agl.spans SET payload = payload || 'x'`, "does not match its checksum"},
		{"span count", `UPDATE agl.attempts SET span_count = 7`, "has 1 spans, but says 7"},
		{"lost span", `DELETE FROM agl.spans`, "has 0 spans, but says 1"},
		{"lost attempt", `DELETE FROM agl.attempts`, "have no attempt"},
		{"lost rollout", `DELETE FROM agl.rollouts`, "its rollout is gone"},
		{"attempts", `UPDATE agl.rollouts SET attempts = 5`, "but says 5"},
		{"queue", `UPDATE agl.rollouts SET place = NULL`, "its place in the queue is null"},
		{"sequence", `DELETE FROM agl.sequences`, "the last one given is none"},
		{"config", `UPDATE agl.rollouts SET config = '{'`, "does not decode"},
		{"resources", `UPDATE agl.resources SET resources = '[1]'`, "do not decode"},
		{"latest resources", `DELETE FROM agl.resources`, "do not exist"},
		{"attempt status", `UPDATE agl.attempts SET status = 'lost'`, `is "lost"`},
		{"attempt metadata", `UPDATE agl.attempts SET metadata = '{'`, "the metadata of attempt"},
		{"worker status", `UPDATE agl.workers SET status = 'lost'`, "the status of worker w is"},
		{"worker stats", `UPDATE agl.workers SET heartbeat_stats = '['`, "the heartbeat_stats of worker w is not a JSON"},
		{"rollout metadata", `UPDATE agl.rollouts SET metadata = '{'`, "the metadata of rollout"},
		{"document", `UPDATE agl.documents SET body = '[1]'`, "the body of run r does not match its checksum; `agl db check` lists what is damaged; lost: the document"},
		{"import", `UPDATE agl.documents SET kind = 'import', id = 'unfinished'`, "import unfinished: the database holds a part of an export"},
		{"idempotency", `UPDATE agl.idempotency SET made = '["x"]'`, "does not decode"},
		{"events", `UPDATE agl.event_counter SET last = 0`, "but the last number given is 0"},
		{"store", `DELETE FROM agl.store`, "table store: its row is missing"},
		{"event counter", `DELETE FROM agl.event_counter`, "table event_counter: its row is missing"},
	} {
		damage(t, databaseURL, tc.breaks, func() {
			if found := strings.Join(check(), "\n"); !strings.Contains(found, tc.want) {
				t.Errorf("%s: found %q, want %q", tc.name, found, tc.want)
			}
			if status, err := d.Status(t.Context()); err != nil || status.PartlyFilled != (tc.name == "import") {
				t.Errorf("%s: the status is %+v, error %v", tc.name, status, err)
			}
		})
	}
	damage(t, databaseURL, `DELETE FROM agl.sequences; UPDATE agl.documents SET kind = 'import', id = 'unfinished'`, func() {
		if found := check(); len(found) != 1 || !strings.Contains(found[0], "a part of an export") {
			t.Errorf("an import before its sequence ids: found %q, want the import alone", found)
		}
	})
	for name := range strings.FieldsSeq(ask(t, databaseURL, `SELECT string_agg(c.relname, ' ') FROM pg_class c WHERE c.relkind = 'i' AND c.relnamespace = 'agl'::regnamespace`)) {
		execute(t, databaseURL, `ALTER INDEX agl.`+name+` RENAME TO other`)
		if found := check(); len(found) != 1 || !strings.HasPrefix(found[0], "index "+name+": it is missing") {
			t.Errorf("index %s is missing: found %q", name, found)
		}
		execute(t, databaseURL, `ALTER INDEX agl.other RENAME TO `+name)
	}
	if found := check(); len(found) > 0 {
		t.Errorf("mended: %q", found)
	}
	damage(t, databaseURL, `UPDATE agl.spans SET payload = payload || 'x'`, func() {
		_, err := s.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: r.RolloutID})
		if agl.ErrorCode(err) != agl.CodeInternal || !strings.Contains(err.Error(), r.RolloutID+"/"+r.Attempt.AttemptID+"/s") {
			t.Errorf("a damaged span: error %v", err)
		}
	})
}

// TestSchemas has servers of two schemas in one database: each schema is in use by its own server alone.
func TestSchemas(t *testing.T) {
	t.Parallel()
	databaseURL := fresh(t)
	names := []string{"agl", "db", `"Ü` + strings.Repeat("x", 60) + `"`, `"Ä` + strings.Repeat("x", 60) + `"`, strings.Repeat("y", 61) + "1", strings.Repeat("y", 61) + "2"}
	execute(t, databaseURL, `CREATE SCHEMA db; CREATE SCHEMA `+strings.Join(names[2:], `; CREATE SCHEMA `))
	inUse := func(schema string) bool {
		t.Helper()
		status, err := openDatabase(t, inSchema(t, databaseURL, schema)).Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return status.InUse
	}
	for i, name := range names {
		if inUse(name) {
			t.Errorf("schema %s is in use before its server starts", name)
		}
		engine(t, postgres.Config{URL: inSchema(t, databaseURL, name)})
		for j, other := range names {
			if got := inUse(other); got != (j <= i) {
				t.Errorf("with servers of %q: schema %s is in use: %t", names[:i+1], other, got)
			}
		}
	}
	if !inUse("agl,public") { // another search_path, the same schema
		t.Error("the schema agl is not in use by another search_path")
	}
}

// inSchema returns the URL of a schema of a database.
func inSchema(t *testing.T, databaseURL, schema string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("search_path", schema)
	u.RawQuery = query.Encode()
	return u.String()
}

// damage runs SQL, then f, and puts everything back.
func damage(t *testing.T, databaseURL, sql string, f func()) {
	t.Helper()
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	tables := []string{"rollouts", "attempts", "workers", "spans", "sequences", "resources", "documents", "idempotency", "event_counter", "store"}
	var save, restore strings.Builder
	for _, table := range tables {
		save.WriteString(`CREATE TEMP TABLE saved_` + table + ` AS TABLE agl.` + table + `;`)
		restore.WriteString(`DELETE FROM agl.` + table + `; INSERT INTO agl.` + table + ` OVERRIDING SYSTEM VALUE TABLE saved_` + table + `;`)
	}
	for i, sql := range []string{save.String() + sql, restore.String()} {
		if i == 1 {
			f()
		}
		if _, err := conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEventsOfACopy reads a copy of a database by an id of the original.
func TestEventsOfACopy(t *testing.T) {
	t.Parallel()
	if os.Getenv("AGL_POSTGRES_URL") != "" {
		t.Skip("a template must not be in use")
	}
	databaseURL := fresh(t)
	d, err := postgres.Open(t.Context(), postgres.Config{URL: databaseURL})
	if err != nil {
		t.Fatal(err)
	}
	list, err := d.Events(t.Context(), "", 0)
	if err := errors.Join(err, d.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	s := server.Server(t)
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	original := strings.TrimPrefix(u.Path, "/")
	if err := postgrestest.Execute(t.Context(), s.URL("postgres"), `CREATE DATABASE `+original+`_copy TEMPLATE `+original); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.DropDatabase(context.WithoutCancel(t.Context()), s.URL(original+"_copy")); err != nil {
			t.Error(err)
		}
	})
	copied := open(t, postgres.Config{URL: s.URL(original + "_copy")})
	if got, err := copied.Events(t.Context(), list.Last, 10); err != nil || !got.Reset {
		t.Errorf("an id of the original: %+v, error %v, want a reset", got, err)
	}
}

// TestEventsOfABackup restores a backup while a server runs: the numbers of events after it are given a second time, so an id
// from before it says nothing, although the log has gone past its number.
func TestEventsOfABackup(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	d := open(t, postgres.Config{URL: databaseURL})
	list, err := d.Events(t.Context(), "", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := d.Events(t.Context(), list.Last, 10); err != nil || got.Reset {
		t.Errorf("before: %+v, error %v, want no reset", got, err)
	}
	execute(t, databaseURL, `CREATE TABLE agl.backup (LIKE agl.events INCLUDING ALL); DROP TABLE agl.events; ALTER TABLE agl.backup RENAME TO events;
		ALTER INDEX agl.backup_pkey RENAME TO events_pkey`)
	got, err := d.Events(t.Context(), list.Last, 10)
	if err != nil || !got.Reset {
		t.Errorf("an id from before: %+v, error %v, want a reset", got, err)
	}
	if got, err := d.Events(t.Context(), got.Last, 10); err != nil || got.Reset {
		t.Errorf("an id from afterwards: %+v, error %v, want no reset", got, err)
	}
}

func TestClockOfTheDatabase(t *testing.T) {
	t.Parallel()
	for by, want := range map[string]string{"0 seconds": "", "330 seconds": "ahead=-5m", "-330 seconds": "ahead=5m"} { // to within half a minute
		databaseURL := fresh(t)
		execute(t, databaseURL, `CREATE SCHEMA clock; CREATE FUNCTION clock.clock_timestamp() RETURNS timestamptz LANGUAGE sql AS $$ SELECT pg_catalog.clock_timestamp() + interval '`+by+`' $$`)
		var log strings.Builder
		u, err := url.Parse(databaseURL)
		if err != nil {
			t.Fatal(err)
		}
		query := u.Query()
		query.Set("search_path", "public,clock,pg_catalog")
		u.RawQuery = query.Encode()
		d, err := postgres.Open(t.Context(), postgres.Config{URL: u.String(), Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelWarn}))})
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if got := log.String(); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("a database that is ahead by %s: the log says %q, want %q", by, got, want)
		}
	}
}
