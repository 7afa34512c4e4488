package sqlstore_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

const (
	page   = " LIMIT ? + 0 OFFSET ?"
	ties   = ", s.start_time NULLS LAST, s.end_time NULLS LAST, s.ordinal"
	within = " IN (SELECT value FROM json_each(?))"
)

func paging(sortBy string, order agl.SortOrder) agl.Paging {
	return agl.Paging{Limit: -1, SortBy: sortBy, Order: order}
}

func TestFilters(t *testing.T) {
	t.Parallel()
	all := agl.Paging{Limit: -1}
	for _, tc := range []struct {
		name             string
		build            func(d sqlstore.Dialect) sqlstore.Query
		sqlite, postgres string
		args             []any // of SQLite
	}{
		{
			"none",
			func(d sqlstore.Dialect) sqlstore.Query { return d.Rollouts(agl.QueryRolloutsParams{Paging: all}) },
			"", "", nil,
		},
		{
			"none is all, by or too",
			func(d sqlstore.Dialect) sqlstore.Query {
				return d.Rollouts(agl.QueryRolloutsParams{Logic: agl.FilterOr, Paging: all})
			},
			"", "", nil,
		},
		{
			"rollouts and",
			func(d sqlstore.Dialect) sqlstore.Query {
				return d.Rollouts(agl.QueryRolloutsParams{
					StatusIn: []agl.RolloutStatus{agl.RolloutQueuing, agl.RolloutFailed}, RolloutIDIn: []string{`a"b`}, RolloutIDContains: "%", Paging: all,
				})
			},
			" WHERE r.status" + within + " AND r.rollout_id" + within + " AND instr(r.rollout_id, ?) > 0",
			" WHERE r.status = ANY($1) AND r.rollout_id = ANY($2) AND strpos(r.rollout_id, $3) > 0",
			[]any{`["queuing","failed"]`, `["a\"b"]`, "%"},
		},
		{
			"rollouts or",
			func(d sqlstore.Dialect) sqlstore.Query {
				return d.Rollouts(agl.QueryRolloutsParams{
					StatusIn: []agl.RolloutStatus{}, RolloutIDContains: "x", Logic: agl.FilterOr, Paging: all,
				}, sqlstore.Condition{SQL: "r.ordinal > ?", Args: []any{7}})
			},
			" WHERE r.ordinal > ? AND (r.status" + within + " OR instr(r.rollout_id, ?) > 0)",
			" WHERE r.ordinal > $1 AND (r.status = ANY($2) OR strpos(r.rollout_id, $3) > 0)",
			[]any{7, "[]", "x"},
		},
		{
			"attempts",
			func(d sqlstore.Dialect) sqlstore.Query {
				return d.Attempts(agl.QueryAttemptsParams{Paging: all}, sqlstore.Condition{SQL: "a.rollout_id = ?", Args: []any{"r"}})
			},
			" WHERE a.rollout_id = ?", " WHERE a.rollout_id = $1", []any{"r"},
		},
		{
			"spans",
			func(d sqlstore.Dialect) sqlstore.Query {
				return d.Spans(agl.QuerySpansParams{
					TraceID: "t", TraceIDContains: "T", SpanID: "s", SpanIDContains: "S", ParentID: "p", ParentIDContains: "P",
					Name: "n", NameContains: "N", Logic: agl.FilterOr, Paging: all,
				}, sqlstore.Condition{SQL: "s.rollout_id = ?", Args: []any{"r"}}, sqlstore.Condition{SQL: "s.attempt_id = ?", Args: []any{"a"}})
			},
			" WHERE s.rollout_id = ? AND s.attempt_id = ? AND (s.trace_id = ? OR instr(s.trace_id, ?) > 0 OR s.span_id = ?" +
				" OR instr(s.span_id, ?) > 0 OR s.parent_id = ? OR instr(s.parent_id, ?) > 0 OR s.name = ? OR instr(s.name, ?) > 0)",
			" WHERE s.rollout_id = $1 AND s.attempt_id = $2 AND (s.trace_id = $3 OR strpos(s.trace_id, $4) > 0 OR s.span_id = $5" +
				" OR strpos(s.span_id, $6) > 0 OR s.parent_id = $7 OR strpos(s.parent_id, $8) > 0 OR s.name = $9 OR strpos(s.name, $10) > 0)",
			[]any{"r", "a", "t", "T", "s", "S", "p", "P", "n", "N"},
		},
		{
			"resources",
			func(d sqlstore.Dialect) sqlstore.Query {
				return d.Resources(agl.QueryResourcesParams{ResourcesID: "u", ResourcesIDContains: "v", Paging: all})
			},
			" WHERE u.resources_id = ? AND instr(u.resources_id, ?) > 0", " WHERE u.resources_id = $1 AND strpos(u.resources_id, $2) > 0",
			[]any{"u", "v"},
		},
		{
			"workers",
			func(d sqlstore.Dialect) sqlstore.Query {
				return d.Workers(agl.QueryWorkersParams{StatusIn: []agl.WorkerStatus{agl.WorkerIdle}, WorkerIDContains: "w", Paging: all})
			},
			" WHERE w.status" + within + " AND instr(w.worker_id, ?) > 0",
			" WHERE w.status = ANY($1) AND strpos(w.worker_id, $2) > 0",
			[]any{`["idle"]`, "w"},
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			q := tc.build(sqlstore.SQLite)
			sql, args := q.Count()
			if sql != tc.sqlite {
				t.Errorf("SQLite:\ngot  %q\nwant %q", sql, tc.sqlite)
			}
			if diff := cmp.Diff(tc.args, args); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			if pg := tc.build(sqlstore.Postgres); pg.Where != tc.postgres {
				t.Errorf("PostgreSQL:\ngot  %q\nwant %q", pg.Where, tc.postgres)
			}
		})
	}
}

func TestFiltered(t *testing.T) {
	t.Parallel()
	always := sqlstore.Condition{SQL: "s.attempt = ?", Args: []any{1}}
	if q := sqlstore.SQLite.Spans(agl.QuerySpansParams{}, always); q.Filtered {
		t.Error("a condition that always holds counts as a filter")
	}
	if q := sqlstore.SQLite.Spans(agl.QuerySpansParams{Name: "n"}, always); !q.Filtered {
		t.Error("a filter does not count")
	}
}

// TestListsOfPostgres checks that a list is an argument that pgx takes for text[].
func TestListsOfPostgres(t *testing.T) {
	t.Parallel()
	q := sqlstore.Postgres.Workers(agl.QueryWorkersParams{StatusIn: []agl.WorkerStatus{agl.WorkerIdle, agl.WorkerBusy}})
	if diff := cmp.Diff([]any{[]string{"idle", "busy"}}, q.Args); diff != "" {
		t.Errorf("arguments (-want +got):\n%s", diff)
	}
}

func TestOrder(t *testing.T) {
	t.Parallel()
	rollouts := func(d sqlstore.Dialect, p agl.Paging) sqlstore.Query {
		return d.Rollouts(agl.QueryRolloutsParams{Paging: p})
	}
	attempts := func(d sqlstore.Dialect, p agl.Paging) sqlstore.Query {
		return d.Attempts(agl.QueryAttemptsParams{Paging: p})
	}
	spans := func(d sqlstore.Dialect, p agl.Paging) sqlstore.Query {
		return d.Spans(agl.QuerySpansParams{Paging: p})
	}
	resources := func(d sqlstore.Dialect, p agl.Paging) sqlstore.Query {
		return d.Resources(agl.QueryResourcesParams{Paging: p})
	}
	workers := func(d sqlstore.Dialect, p agl.Paging) sqlstore.Query {
		return d.Workers(agl.QueryWorkersParams{Paging: p})
	}
	const asc, desc = agl.Ascending, agl.Descending
	for _, tc := range []struct {
		build func(d sqlstore.Dialect, p agl.Paging) sqlstore.Query
		field string
		order agl.SortOrder
		want  string // of SQLite
	}{
		{rollouts, "", asc, "r.ordinal"},
		{rollouts, "", desc, "r.ordinal"}, // the order of creation has one direction
		{rollouts, "rollout_id", "", "r.rollout_id, r.ordinal"},
		{rollouts, "start_time", asc, "r.start_time NULLS LAST, r.ordinal"},
		{rollouts, "end_time", asc, "r.end_time NULLS LAST, r.ordinal"},
		{rollouts, "end_time", desc, "r.end_time DESC NULLS FIRST, r.ordinal"},
		{rollouts, "mode", desc, "COALESCE(r.mode, '') DESC, r.ordinal"},
		{rollouts, "resources_id", asc, "COALESCE(r.resources_id, ''), r.ordinal"},
		{rollouts, "status", desc, "r.status DESC, r.ordinal"},
		{attempts, "", desc, "a.sequence_id DESC, a.ordinal"},
		{attempts, "sequence_id", asc, "a.sequence_id, a.ordinal"},
		{attempts, "rollout_id", desc, "a.ordinal"},
		{attempts, "attempt_id", asc, "a.attempt_id, a.ordinal"},
		{attempts, "status", asc, "a.status, a.ordinal"},
		{attempts, "worker_id", asc, "COALESCE(a.worker_id, ''), a.ordinal"},
		{attempts, "start_time", desc, "a.start_time DESC NULLS FIRST, a.ordinal"},
		{attempts, "last_heartbeat_time", asc, "a.last_heartbeat_time NULLS LAST, a.ordinal"},
		{spans, "", asc, "s.sequence_id" + ties},
		{spans, "", desc, "s.sequence_id" + ties},
		{spans, "sequence_id", asc, "s.sequence_id" + ties},
		{spans, "sequence_id", desc, "s.sequence_id DESC" + ties},
		{spans, "rollout_id", desc, "s.ordinal"},
		{spans, "attempt_id", desc, "s.attempt_id DESC, s.ordinal"},
		{spans, "trace_id", asc, "s.trace_id, s.ordinal"},
		{spans, "span_id", asc, "s.span_id, s.ordinal"},
		{spans, "parent_id", desc, "COALESCE(s.parent_id, '') DESC, s.ordinal"},
		{spans, "name", desc, "s.name DESC, s.ordinal"},
		{spans, "start_time", desc, "s.start_time DESC NULLS FIRST, s.ordinal"},
		{spans, "end_time", asc, "s.end_time NULLS LAST, s.ordinal"},
		{resources, "", asc, "u.ordinal"},
		{resources, "resources_id", desc, "u.resources_id DESC, u.ordinal"},
		{resources, "create_time", asc, "u.create_time NULLS LAST, u.ordinal"},
		{resources, "version", desc, "u.version DESC, u.ordinal"},
		{workers, "", asc, "w.ordinal"},
		{workers, "worker_id", asc, "w.worker_id, w.ordinal"},
		{workers, "status", desc, "w.status DESC, w.ordinal"},
		{workers, "current_attempt_id", asc, "COALESCE(w.current_attempt_id, ''), w.ordinal"},
		{workers, "last_idle_time", desc, "w.last_idle_time DESC NULLS FIRST, w.ordinal"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			t.Parallel()
			p := paging(tc.field, tc.order)
			if got := tc.build(sqlstore.SQLite, p).OrderBy; got != " ORDER BY "+tc.want {
				t.Errorf("got %q, want %q", got, " ORDER BY "+tc.want)
			}
			// PostgreSQL's own collations do not sort by bytes.
			got := tc.build(sqlstore.Postgres, p).OrderBy
			if strings.ReplaceAll(got, ` COLLATE "C"`, "") != " ORDER BY "+tc.want {
				t.Errorf("PostgreSQL: got %q", got)
			}
			text := !strings.HasSuffix(tc.field, "_time") && tc.field != "" && tc.field != "sequence_id" && tc.field != "version" &&
				strings.Contains(tc.want, ", ")
			if strings.Contains(got, `COLLATE "C"`) != text {
				t.Errorf("PostgreSQL: got %q, want the collation C for texts and for nothing else", got)
			}
		})
	}
}

func TestPage(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name             string
		limit, offset    int
		sqlite, postgres string
		args             []any
	}{
		{"everything", -1, 0, "", "", []any{"u"}},
		{"the rest", -1, 5, " LIMIT -1 OFFSET ?", " OFFSET $2", []any{"u", 5}},
		{"a page", 10, 5, page, " LIMIT $2 OFFSET $3", []any{"u", 10, 5}},
		{"the first", 10, 0, page, " LIMIT $2 OFFSET $3", []any{"u", 10, 0}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			p := agl.QueryResourcesParams{ResourcesID: "u", Paging: agl.Paging{Limit: tc.limit, Offset: tc.offset}}
			q := sqlstore.SQLite.Resources(p)
			sql, args := q.Page()
			if want := " WHERE u.resources_id = ? ORDER BY u.ordinal" + tc.sqlite; sql != want {
				t.Errorf("got %q, want %q", sql, want)
			}
			if diff := cmp.Diff(tc.args, args); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
			q = sqlstore.Postgres.Resources(p)
			sql, args = q.Page()
			if want := " WHERE u.resources_id = $1 ORDER BY u.ordinal" + tc.postgres; sql != want {
				t.Errorf("PostgreSQL: got %q, want %q", sql, want)
			}
			if diff := cmp.Diff(tc.args, args); diff != "" {
				t.Errorf("arguments (-want +got):\n%s", diff)
			}
		})
	}
}
