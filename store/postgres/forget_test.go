package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/postgres"
)

// TestForgetsABacklog has more expired records than one statement may delete within its timeout. A trigger stands for that
// timeout.
func TestForgetsABacklog(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	d := open(t, postgres.Config{URL: databaseURL, Lifetimes: driver.Lifetimes{MaxEvents: 10}})
	execute(t, databaseURL, `
		CREATE FUNCTION agl.few() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF (SELECT count(*) FROM gone) > 10000 THEN RAISE EXCEPTION 'canceling statement due to statement timeout'; END IF;
			RETURN NULL;
		END $$;
		CREATE TRIGGER few AFTER DELETE ON agl.events REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION agl.few();
		CREATE TRIGGER few AFTER DELETE ON agl.idempotency REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION agl.few();
		INSERT INTO agl.idempotency SELECT 'key ' || i, '', i / 1e6, '[]', '' FROM generate_series(1, 25000) i;
		INSERT INTO agl.events SELECT i, i / 1e6, 'rollout', '', '', '', '', '', '' FROM generate_series(1, 25000) i;
		UPDATE agl.event_counter SET last = 25000`)
	defer execute(t, databaseURL, `DROP FUNCTION agl.few() CASCADE`) // other tests use the database, too
	apply(t, d, driver.Changes{Now: 1, Keys: []driver.IdempotencyRecord{{Scope: "new", CreateTime: 100_000}}})
	if err := d.ForgetOld(t.Context(), 100_000); err != nil {
		t.Fatal(err)
	}
	if got := ask(t, databaseURL, `SELECT string_agg(scope, ',') FROM agl.idempotency`); got != "new" {
		t.Errorf("the keys %.100q are left", got)
	}
	if got := ask(t, databaseURL, `SELECT count(*) || ' after ' || (SELECT event_floor FROM agl.store) FROM agl.events`); got != "0 after 25000" {
		t.Errorf("%s events are left", got)
	}
}

// TestForgetsWhatNobodyHolds has a session that holds one of the expired keys, as another server does while it deletes them.
func TestForgetsWhatNobodyHolds(t *testing.T) {
	t.Parallel()
	databaseURL := server.Database(t)
	d := open(t, postgres.Config{URL: databaseURL})
	apply(t, d, driver.Changes{Now: 1, Keys: []driver.IdempotencyRecord{{Scope: "held", CreateTime: 1}, {Scope: "free", CreateTime: 2}}})
	ctx := t.Context()
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	tx, err := conn.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(ctx, `SELECT FROM agl.idempotency WHERE scope = 'held' FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if err := d.ForgetOld(ctx, 100_000); err != nil {
		t.Error(err)
	}
	if got := ask(t, databaseURL, `SELECT string_agg(scope, ',') FROM agl.idempotency`); got != "held" {
		t.Errorf("the keys %q are left, want the one that is held", got)
	}
}
