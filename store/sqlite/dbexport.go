package sqlite

import (
	"context"
	"errors"
	"iter"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
)

// Export implements store.Exporter, beside a server that may serve the file. The
// sequence ids that such a server has handed out beyond those written down are
// taken to be as many as it may have.
func (d *Database) Export(ctx context.Context) iter.Seq2[store.Record, error] {
	return func(yield func(store.Record, error) bool) {
		err := d.read(ctx, func(c *conn) error { return d.export(ctx, c, yield) })
		if err != nil && !errors.Is(err, errConsumerStopped) {
			yield(store.Record{}, err)
		}
	}
}

func (d *Database) export(ctx context.Context, c *conn, yield func(store.Record, error) bool) (err error) {
	codec, err := newCodec()
	if err != nil {
		return err
	}
	defer codec.close()
	if err := c.exec(ctx, "BEGIN"); err != nil {
		return err
	}
	defer func() {
		if end := c.exec(ctx, "ROLLBACK"); err == nil {
			err = end
		}
	}()
	if err := d.usable(ctx, c); err != nil {
		return err
	}
	s, err := readState(ctx, c)
	if err != nil {
		return err
	}
	crashes := map[int64]bool{s.boot: !s.clean}
	if err := c.query(ctx, "SELECT boot FROM crashes", nil, func(r row) error {
		crashes[r.int(0)] = true
		return nil
	}); err != nil {
		return err
	}
	e := exporter{d: &Driver{path: d.path, codec: codec, crashes: crashes}, c: c, yield: yield}
	return e.run(ctx)
}

// Statistics implements store.Exporter.
func (d *Database) Statistics(ctx context.Context) (agl.Statistics, error) {
	status, err := d.Status(ctx)
	return status.Contents, err
}
