package postgres

import (
	"context"
	"iter"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

// Export implements driver.Exporter: one snapshot, while servers run.
func (d *Database) Export(ctx context.Context) iter.Seq2[driver.Record, error] {
	return sqlstore.Export(func(give func(driver.Record) error) error {
		err := d.current(ctx)
		if err == nil {
			err = exportFrom(ctx, d.conn, give)
		}
		return failed(ctx, "export", err)
	})
}

// current refuses every schema version but the one that this program knows.
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

// Statistics implements driver.Exporter.
func (d *Database) Statistics(ctx context.Context) (agl.Statistics, error) {
	status, err := d.Status(ctx)
	return status.Contents, err
}
