package postgres

import (
	"context"
	"errors"
	"iter"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

// Export implements store.Exporter: one snapshot, beside the servers.
func (d *Database) Export(ctx context.Context) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		err := d.current(ctx)
		if err == nil {
			err = exportFrom(ctx, d.conn, yield)
		}
		if err != nil && !errors.Is(err, errStopped) {
			yield(store.Record{}, failed(ctx, "export", err))
		}
	}
}

// current refuses a schema other than the one that this program knows.
func (d *Database) current(ctx context.Context) error {
	version, err := schemaVersion(ctx, d.conn)
	if err != nil {
		return err
	}
	steps, err := known()
	if err == nil && version != len(steps) {
		err = agl.Errorf(agl.CodeIllegalState, "postgres: the database has schema version %d, this needs version %d; see agl db status", version, len(steps))
	}
	return err
}

// Statistics implements store.Exporter.
func (d *Database) Statistics(ctx context.Context) (agl.Statistics, error) {
	status, err := d.Status(ctx)
	return status.Contents, err
}
