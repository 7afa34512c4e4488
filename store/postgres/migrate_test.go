package postgres_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/postgres"
	"github.com/agl-go/agl/store/postgres/postgrestest"
)

// TestOlderSchema opens a database of the version before rollouts had labels.
func TestOlderSchema(t *testing.T) {
	t.Parallel()
	databaseURL := fresh(t)
	config := postgres.Config{URL: databaseURL}
	s := startEngine(t, config, nil)
	const many = 2500 // more than are labelled at once
	var rollouts []agl.EnqueueRollout
	for range many {
		rollouts = append(rollouts, agl.EnqueueRollout{Metadata: jsontext.Value(`{"run":"r\u0000","step":3,"group":1}`)})
	}
	rollouts = append(rollouts, agl.EnqueueRollout{})
	if _, err := s.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: rollouts}); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{
		`ALTER TABLE rollouts DROP COLUMN reward, DROP COLUMN run, DROP COLUMN step, DROP COLUMN labels`,
		`ALTER TABLE attempts DROP COLUMN reward, DROP COLUMN reward_priority, DROP COLUMN reward_sequence`,
		`DELETE FROM schema_version WHERE version = 5`,
	} {
		if err := postgrestest.Execute(t.Context(), databaseURL, sql); err != nil {
			t.Fatal(err)
		}
	}
	d := open(t, config)
	for _, l := range []agl.Label{{Name: "run", Value: "r\x00"}, {Name: "step", Value: "3"}, {Name: "group", Value: "1"}} {
		page, err := d.QueryRollouts(t.Context(), agl.QueryRolloutsParams{Labels: []agl.Label{l}, Paging: agl.Paging{Limit: 1}})
		if err != nil || page.Total != many {
			t.Errorf("%v: %d rollouts, error %v, want %d", l, page.Total, err, many)
		}
	}
}

// TestNewerServer migrates the schema under a server that writes, as a rolling upgrade does. The server stops to write before, and
// what it has acknowledged is there.
func TestNewerServer(t *testing.T) {
	t.Parallel()
	databaseURL := fresh(t)
	config := postgres.Config{URL: databaseURL, PollInterval: time.Hour}
	s, idle := engine(t, config), open(t, config)
	acknowledged, refused := 0, make(chan error, 1)
	first := make(chan struct{})
	go func() {
		for {
			_, err := s.EnqueueRollouts(context.WithoutCancel(t.Context()), agl.EnqueueRolloutsParams{Rollouts: numbered(1)})
			if err != nil {
				refused <- err
				return
			}
			if acknowledged++; acknowledged == 1 {
				close(first)
			}
		}
	}()
	<-first
	if err := postgres.MigrateFurther(t.Context(), databaseURL, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	const want = "a newer agl has migrated the database's schema"
	if err := <-refused; !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("a write after %d: %v", acknowledged, err)
	}
	if _, err := s.QueryRollouts(t.Context(), agl.QueryRolloutsParams{}); !errors.Is(err, agl.ErrUnavailable) {
		t.Errorf("a query: %v", err)
	}
	if err := idle.Ping(t.Context()); !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("the readiness of a server that writes nothing: %v", err)
	}
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	stored := 0
	if err := conn.QueryRow(t.Context(), `SELECT count(*) FROM agl.rollouts`).Scan(&stored); err != nil || stored != acknowledged {
		t.Errorf("%d rollouts are stored, %d were acknowledged; error %v", stored, acknowledged, err)
	}
}

// TestMigrationWaits: a server that does not hear that it must stop is waited for.
func TestMigrationWaits(t *testing.T) {
	t.Parallel()
	databaseURL := fresh(t)
	open(t, postgres.Config{URL: databaseURL})
	conn, err := pgx.Connect(t.Context(), databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), `SET search_path = agl; `+postgres.ServingLock); err != nil {
		t.Fatal(err)
	}
	said := make(chan string, 1)
	migrated := make(chan error, 1)
	go func() {
		migrated <- postgres.MigrateFurther(t.Context(), databaseURL, slog.New(slog.NewTextHandler(sender(said), nil)))
	}()
	if line := <-said; !strings.Contains(line, "servers of an older version use the database") {
		t.Errorf("logged %s", line)
	}
	if err := conn.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-migrated; err != nil {
		t.Error(err)
	}
}

// TestMissingSchema: a search_path names a schema that somebody has made.
func TestMissingSchema(t *testing.T) {
	t.Parallel()
	databaseURL := fresh(t)
	config := postgres.Config{URL: databaseURL + "&search_path=elsewhere"}
	const want = "the schema of search_path=elsewhere does not exist"
	if _, err := postgres.Open(t.Context(), config); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
	if err := postgrestest.Execute(t.Context(), databaseURL, `CREATE SCHEMA elsewhere`); err != nil {
		t.Fatal(err)
	}
	open(t, config)
}

// TestNewerSchemaWithoutTables: a server of which a newer schema no longer has the tables is told that it is outdated.
func TestNewerSchemaWithoutTables(t *testing.T) {
	t.Parallel()
	databaseURL := fresh(t)
	d := open(t, postgres.Config{URL: databaseURL, PollInterval: time.Hour})
	execute(t, databaseURL, `ALTER TABLE agl.rollouts RENAME TO runs; INSERT INTO agl.schema_version (version) VALUES (1000)`)
	const want = "a newer agl has migrated the database's schema"
	if err := d.Ping(t.Context()); !errors.Is(err, agl.ErrUnavailable) || !strings.Contains(err.Error(), want) {
		t.Errorf("got %v, want %q", err, want)
	}
}

// sender passes on the first thing that is written.
type sender chan string

func (s sender) Write(p []byte) (int, error) {
	select {
	case s <- string(p):
	default:
	}
	return len(p), nil
}
