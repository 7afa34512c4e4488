package postgrestest

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl/store/postgres"
)

// Stores configures a server whose databases have the schema of a store and no rows.
func Stores() Config { return Config{Template: migrate, Recycle: empty} }

func migrate(ctx context.Context, url string) error {
	d, err := postgres.OpenDatabase(ctx, url)
	if err != nil {
		return err
	}
	_, _, err = d.Migrate(ctx)
	return errors.Join(err, d.Close())
}

// empty removes the rows of a used database and gives it a new identity.
func empty(ctx context.Context, url string) error {
	return Execute(ctx, url, `DELETE FROM rollouts; DELETE FROM attempts; DELETE FROM workers; DELETE FROM resources;
		DELETE FROM sequences; DELETE FROM spans; DELETE FROM documents; DELETE FROM idempotency; DELETE FROM events;
		UPDATE event_counter SET last = 0;
		UPDATE store SET identity = left(md5(random()::text), 12), queue_closed = false, latest_resources = NULL, event_floor = 0`)
}

// Execute runs SQL on a store's database, through a connection of its own.
func Execute(ctx context.Context, url, sql string) error {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return err
	}
	config.RuntimeParams["search_path"] = "agl"
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return err
	}
	_, err = conn.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol)
	return errors.Join(err, conn.Close(ctx))
}
