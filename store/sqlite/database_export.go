package sqlite

import (
	"context"
	"iter"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

// Export implements driver.Exporter. A server may be serving the file. Sequence ids
// that it has given out beyond those on disk count up to the end of their block.
func (d *Database) Export(ctx context.Context) iter.Seq2[driver.Record, error] {
	return sqlstore.Export(func(give func(driver.Record) error) error {
		return d.read(ctx, func(c *conn) error {
			return c.snapshot(ctx, func() error { return d.export(ctx, c, give) })
		})
	})
}

func (d *Database) export(ctx context.Context, c *conn, give func(driver.Record) error) error {
	codec, err := newCodec()
	if err != nil {
		return err
	}
	defer codec.close()
	if err := d.usable(ctx, c); err != nil {
		return err
	}
	s, err := readState(ctx, c)
	if err != nil {
		return err
	}
	crashes := map[int64]bool{s.boot: !s.clean}
	if err := readCrashes(ctx, c, crashes); err != nil {
		return err
	}
	e := exporter{d: &Driver{path: d.path, codec: codec, crashes: crashes}, c: c, give: give}
	return e.run(ctx)
}

// Statistics implements driver.Exporter.
func (d *Database) Statistics(ctx context.Context) (agl.Statistics, error) {
	status, err := d.Status(ctx)
	return status.Contents, err
}
