package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/postgres"
	"github.com/agl-go/agl/store/postgres/postgrestest"
)

// TestTablesAway has a database whose tables are not there, as after a failover to a server that does not have them yet, or
// while a backup is restored: callers repeat their calls, and the server needs no restart when they are back.
func TestTablesAway(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	s := engine(t, postgres.Config{URL: databaseURL})
	enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
	ctx := t.Context()
	for _, cut := range []bool{false, true} {
		execute(t, databaseURL, `ALTER SCHEMA agl RENAME TO away`)
		if cut {
			execute(t, databaseURL, disconnect)
		}
		_, err := s.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
		if !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("enqueue: error %v, want CodeUnavailable", err)
		}
		if _, err := s.QueryRollouts(ctx, agl.QueryRolloutsParams{}); !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("query: error %v, want CodeUnavailable", err)
		}
		if err := s.Ready(ctx); !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("ready: error %v, want CodeUnavailable", err)
		}
		execute(t, databaseURL, `ALTER SCHEMA away RENAME TO agl`)
		if err := s.Ready(ctx); err != nil {
			t.Error(err)
		}
		enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
	}
}

// TestRights: a backup that is restored without the owners of its tables lets the role of the store do nothing until it has rights.
func TestRights(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(server.Database(t))
	if err != nil {
		t.Fatal(err)
	}
	owner, role := u.String(), "user_of_"+strings.TrimPrefix(u.Path, "/")
	execute(t, owner, `CREATE ROLE `+role+` LOGIN PASSWORD 'pw'`)
	t.Cleanup(func() {
		if err := postgrestest.Execute(context.WithoutCancel(t.Context()), owner, `DROP OWNED BY `+role+`; DROP ROLE `+role); err != nil {
			t.Error(err)
		}
	})
	u.User = url.UserPassword(role, "pw")
	config := postgres.Config{URL: u.String()}
	refused := func(what string, err error, want string) {
		t.Helper()
		if !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want unavailable with %q", what, err, want)
		}
	}
	_, err = postgres.Open(t.Context(), config)
	refused("no rights", err, role+" needs the right USAGE on the schema agl")
	// The first schema that the role may use is the one of the tables, as for PostgreSQL.
	execute(t, owner, `CREATE SCHEMA second AUTHORIZATION `+role)
	second := *u
	second.RawQuery += "&search_path=agl,second"
	other, err := postgres.Open(t.Context(), postgres.Config{URL: second.String()})
	if err == nil {
		err = other.Close(t.Context())
	}
	if err != nil {
		t.Errorf("the second schema of a search_path: %v", err)
	}
	execute(t, owner, `GRANT USAGE ON SCHEMA agl TO `+role+`; GRANT SELECT ON ALL TABLES IN SCHEMA agl TO `+role)
	s := engine(t, config)
	_, err = s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
	refused("enqueue", err, "lacks a right")
	refused("ready", s.Ready(t.Context()), "lacks a right")
	execute(t, owner, `GRANT INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA agl TO `+role+`; GRANT USAGE ON ALL SEQUENCES IN SCHEMA agl TO `+role)
	if err := s.Ready(t.Context()); err != nil {
		t.Error(err)
	}
	enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
}

// TestTablesEmpty: a backup that is being restored has made the tables, and not yet filled them.
func TestTablesEmpty(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	s := engine(t, postgres.Config{URL: databaseURL})
	execute(t, databaseURL, `CREATE TABLE kept AS SELECT version FROM agl.schema_version; DELETE FROM agl.schema_version`)
	execute(t, databaseURL, disconnect)
	if _, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: numbered(1)}); !errors.Is(err, agl.ErrUnavailable) {
		t.Errorf("enqueue: error %v, want CodeUnavailable", err)
	}
	if err := s.Ready(t.Context()); !errors.Is(err, agl.ErrUnavailable) {
		t.Errorf("ready: error %v, want CodeUnavailable", err)
	}
	execute(t, databaseURL, `INSERT INTO agl.schema_version SELECT version FROM kept; DROP TABLE kept`)
	enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
}

// TestTablesIncomplete: a backup that is being restored has filled the tables in part, or has not made their indexes yet. What is
// written now would be lost, or keep the unique indexes from being made.
func TestTablesIncomplete(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	s := engine(t, postgres.Config{URL: databaseURL})
	for i, part := range [][2]string{
		{`CREATE TABLE kept AS TABLE agl.store; DELETE FROM agl.store`, `INSERT INTO agl.store TABLE kept; DROP TABLE kept`},
		{`ALTER INDEX agl.rollouts_by_ordinal RENAME TO later`, `ALTER INDEX agl.later RENAME TO rollouts_by_ordinal`},
		{`ALTER INDEX agl.spans_in_order RENAME TO later`, `ALTER INDEX agl.later RENAME TO spans_in_order`},
	} {
		execute(t, databaseURL, part[0])
		// The rollout may not be there yet.
		_, err := s.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{{RolloutID: "r", AttemptID: "a", SpanID: "s"}}})
		if !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), "incomplete") {
			t.Errorf("%s: spans: error %v, want unavailable", part[0], err)
		}
		_, waits := s.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{RolloutIDs: []string{"r"}})
		_, reads := s.GetDocument(t.Context(), "key", "d")
		_, resources := s.GetLatestResources(t.Context())
		_, worker := s.GetWorker(t.Context(), agl.GetWorkerParams{WorkerID: "w"})
		_, rollouts := s.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
		_, spans := s.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: "r"})
		_, documents := s.QueryDocuments(t.Context(), agl.QueryDocumentsParams{Kind: "key", Limit: 1})
		for name, err := range map[string]error{
			"wait": waits, "a document": reads, "resources": resources, "a worker": worker,
			"a list of rollouts": rollouts, "of spans": spans, "of documents": documents, // a part would look like all of it
		} {
			if !errors.Is(err, agl.ErrUnavailable) {
				t.Errorf("%s: %s: error %v, want unavailable", part[0], name, err)
			}
		}
		if i == 0 {
			if _, err := s.ReadEvents(t.Context(), "0-1", 1); !errors.Is(err, agl.ErrUnavailable) {
				t.Errorf("events: error %v, want unavailable", err)
			}
		}
		if _, err := s.Statistics(t.Context()); err != nil {
			t.Errorf("%s: statistics: %v", part[0], err)
		}
		if err := s.Ready(t.Context()); !errors.Is(err, agl.ErrUnavailable) {
			t.Errorf("%s: ready: error %v, want unavailable", part[0], err)
		}
		execute(t, databaseURL, part[1])
		if err := s.Ready(t.Context()); err != nil {
			t.Error(err)
		}
		enqueue(t, s, agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
		if _, err := s.GetDocument(t.Context(), "key", "d"); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("a document that does not exist: error %v", err)
		}
	}
}

func execute(t *testing.T, databaseURL, sql string) {
	t.Helper()
	if err := postgrestest.Execute(t.Context(), databaseURL, sql); err != nil {
		t.Fatal(err)
	}
}
