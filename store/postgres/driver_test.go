package postgres_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/postgres"
)

// apply commits changes in a batch of their own.
func apply(t *testing.T, d *postgres.Driver, c driver.Changes) {
	t.Helper()
	b, err := d.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer b.Discard()
	if err := b.Apply(t.Context(), &c); err != nil {
		t.Fatal(err)
	}
}

// TestForgets checks that the event log and the idempotency keys are bounded, and that
// a reader that comes too late gets a reset.
func TestForgets(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	d := open(t, postgres.Config{URL: databaseURL, Lifetimes: driver.Lifetimes{MaxEvents: 10}})
	ctx := t.Context()
	emit := func(now agl.Timestamp, n int) {
		t.Helper()
		apply(t, d, driver.Changes{Now: now, Events: make([]agl.Event, n), Keys: []driver.IdempotencyRecord{
			{Scope: fmt.Sprint("key at ", now), CreateTime: now},
		}})
		if err := d.ForgetOld(ctx, now); err != nil {
			t.Fatal(err)
		}
	}
	read := func(after string) driver.EventList {
		t.Helper()
		list, err := d.Events(ctx, after, 100)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	begin := read("").Last
	emit(1, 10)
	if list := read(begin); list.Reset || len(list.Events) != 10 {
		t.Fatalf("got %d events, reset %v, want 10", len(list.Events), list.Reset)
	}
	first := read(begin).Events[0].ID
	emit(2, 1)
	if !read(begin).Reset {
		t.Error("no reset, although the first event is gone")
	}
	if list := read(first); list.Reset || len(list.Events) != 10 {
		t.Errorf("got %d events, reset %v, want 10", len(list.Events), list.Reset)
	}
	emit(2+3601, 1)
	if list := read(first); !list.Reset {
		t.Errorf("got %d events of an hour ago", len(list.Events))
	}
	if list := read(read("").Last); list.Reset || len(list.Events) > 0 {
		t.Errorf("got %+v after the newest, want nothing", list)
	}
	emit(3+86400, 0)
	if got := ask(t, databaseURL, `SELECT string_agg(scope, ',' ORDER BY scope) FROM agl.idempotency`); got != "key at 3603,key at 86403" {
		t.Errorf("the keys %q are left", got)
	}
	if got := ask(t, databaseURL, `SELECT count(*)::text FROM agl.events`); got != "0" {
		t.Errorf("%s events are left", got)
	}
}

// ask returns the single text that a query selects.
func ask(t *testing.T, databaseURL, sql string) (answer string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if err := conn.QueryRow(t.Context(), sql).Scan(&answer); err != nil {
		t.Fatal(err)
	}
	return answer
}

// TestNoticesAddUp has a slow engine: no notice is lost, and too many become a Resync.
func TestNoticesAddUp(t *testing.T) {
	t.Parallel()
	d := open(t, postgres.Config{URL: server.Database(t), PollInterval: time.Hour})
	notices := d.Capabilities().Notices
	if n := <-notices; !n.Resync {
		t.Errorf("the first notice is %+v, want a resync", n)
	}
	// collect reads until the notices hold what is wanted.
	collect := func(enough func(driver.Notice) bool) (all driver.Notice) {
		for !enough(all) {
			n := <-notices
			all.Resync = all.Resync || n.Resync
			all.Queue = all.Queue || n.Queue
			all.Rollouts = append(all.Rollouts, n.Rollouts...)
		}
		return all
	}
	var want []string
	for i := range 50 {
		want = append(want, strconv.Itoa(i))
		d.Heard(driver.Notice{Queue: i == 7, Rollouts: []string{strconv.Itoa(i)}})
	}
	all := collect(func(n driver.Notice) bool { return len(n.Rollouts) >= len(want) })
	if !slices.Equal(all.Rollouts, want) || !all.Queue || all.Resync {
		t.Errorf("got %+v", all)
	}
	for i := range 3000 {
		d.Heard(driver.Notice{Rollouts: []string{strconv.Itoa(i)}})
	}
	if all := collect(func(n driver.Notice) bool { return n.Resync || len(n.Rollouts) == 3000 }); !all.Resync {
		t.Errorf("got %d rollouts one by one", len(all.Rollouts))
	}
	// What does not fit into a notification.
	d.Heard(driver.Notice{Queue: true, Rollouts: []string{strings.Repeat("x", 8000)}})
	if all := collect(func(n driver.Notice) bool { return n.Resync || n.Queue }); !all.Resync {
		t.Errorf("got %+v, want a resync", all)
	}
}

// TestPlans checks that no statement of a batch reads a whole table, although its
// plan is made while all of them are empty, or the spans are those of one attempt.
func TestPlans(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]string{
		"empty": "",
		"one attempt": `INSERT INTO spans (rollout_id, attempt_id, span_id, sequence_id, trace_id, name, checksum, payload)
			SELECT 'ro-1', 'at-1', i::text, i, '', '', 0, '' FROM generate_series(1, 15000) i; ANALYZE spans`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkPlans(t, fill)
		})
	}
}

func checkPlans(t *testing.T, fill string) {
	t.Helper()
	// A database that was used before has statistics.
	databaseURL, err := server.Server(t).NewDatabase(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	params, err := postgres.WriterParams(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	config, err := pgx.ParseConfig(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	config.RuntimeParams = params
	conn, err := pgx.ConnectConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), fill, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatal(err)
	}
	for name, sql := range postgres.Statements() {
		if _, err := conn.Exec(t.Context(), `PREPARE p_`+name+` AS `+sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		var args []string
		for i := 1; strings.Contains(sql, "$"+strconv.Itoa(i)); i++ {
			args = append(args, "NULL")
		}
		rows, err := conn.Query(t.Context(), `EXPLAIN EXECUTE p_`+name+`(`+strings.Join(args, ",")+`)`, pgx.QueryExecModeSimpleProtocol)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if name == "read_spans" && !strings.Contains(strings.Join(plan, " "), "(span_id = (v.span_id)::text)") {
			t.Errorf("%s does not look up spans by their key:\n%s", name, strings.Join(plan, "\n"))
		}
		for i, line := range plan {
			// There is one counter.
			whole := strings.Contains(line, "Seq Scan") && !strings.Contains(line, "event_counter")
			// A subquery without a parameter, whose result is kept as a hash, has no condition.
			if strings.Contains(line, "Index Scan") || strings.Contains(line, "Index Only Scan") {
				unfinished := strings.Contains(line, "rollouts_live") || strings.Contains(line, "rollouts_queued")
				whole = !unfinished && (i+1 == len(plan) || !strings.Contains(plan[i+1], "Index Cond:"))
			}
			if whole {
				t.Errorf("%s reads a whole table:\n%s", name, strings.Join(plan, "\n"))
				break
			}
		}
	}
}

// TestText checks that texts are read back unchanged and compare as before.
func TestText(t *testing.T) {
	t.Parallel()
	piece := rapid.SampledFrom([]string{"a", "b", "\x00", "\xff", "\x80", "é", "\uFDD0", "\uFDDF", "\uFDEF", "\uFDF0"})
	gen := rapid.Map(rapid.SliceOfN(piece, 0, 6), func(parts []string) string { return strings.Join(parts, "") })
	rapid.Check(t, func(t *rapid.T) {
		s, part := gen.Draw(t, "text"), gen.Draw(t, "part")
		stored := postgres.Text(s)
		if strings.ContainsRune(stored, 0) || strings.ToValidUTF8(stored, "") != stored {
			t.Fatalf("%q is stored as %q", s, stored)
		}
		if got := postgres.Untext(stored); got != s {
			t.Fatalf("%q comes back as %q", s, got)
		}
		// A byte that is no character may end one text and begin another.
		if utf8.ValidString(s) && utf8.ValidString(part) && strings.Contains(s, part) != strings.Contains(stored, postgres.Text(part)) {
			t.Fatalf("%q and %q are stored as %q and %q", s, part, stored, postgres.Text(part))
		}
	})
}

// TestBigInputStays moves a rollout with an input that is stored apart: its
// changes must not write that again.
func TestBigInputStays(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	s := engine(t, postgres.Config{URL: databaseURL})
	var input strings.Builder
	for i := range 20000 {
		fmt.Fprintf(&input, "%x", i*i*7919)
	}
	r := start(t, s, agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: []byte(`"` + input.String() + `"`)}})
	apart := func() string {
		return ask(t, databaseURL, `SELECT string_agg(DISTINCT t.chunk_id::text, ',') FROM pg_toast.pg_toast_`+
			ask(t, databaseURL, `SELECT 'agl.rollouts'::regclass::oid::text`)+` t`)
	}
	before := apart()
	if before == "" {
		t.Fatal("the input is not stored apart")
	}
	if err := setStatus(t.Context(), s, r.Attempt, agl.AttemptSucceeded); err != nil {
		t.Fatal(err)
	}
	if after := apart(); after != before {
		t.Errorf("the input was written again: %s, before %s", after, before)
	}
}
