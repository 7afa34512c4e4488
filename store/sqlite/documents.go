package sqlite

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

const documentColumns = "d.kind, d.id, d.parent, d.sequence, d.version, d.update_time, d.body, d.crc"

func (d *Driver) scanDocument(r row) (*agl.Document, error) {
	out := &agl.Document{
		Kind: r.text(0), ID: r.text(1), Parent: r.text(2), Sequence: r.int(3), Version: r.int(4), UpdateTime: r.time(5), Body: r.bytes(6),
	}
	if d.codec.sum(out.Body) != r.int(7) {
		return nil, errPayload(d.path, out.Kind+" "+out.ID, errChecksum)
	}
	return out, nil
}

// readDocument returns a document, nil if it does not exist.
func (d *Driver) readDocument(ctx context.Context, c *conn, key driver.DocumentKey) (*agl.Document, error) {
	return one(ctx, c, "SELECT "+documentColumns+" FROM documents AS d WHERE d.kind = ? AND d.id = ?", []any{key.Kind, key.ID}, d.scanDocument)
}

// documents adds those of the named documents that exist.
func (l *loader) documents(ctx context.Context, keys []driver.DocumentKey) error {
	for _, key := range keys {
		c, err := l.conn(ctx)
		if err != nil {
			return err
		}
		found, err := l.d.readDocument(ctx, c, key)
		if err != nil {
			return err
		}
		if found != nil {
			l.got.Documents = append(l.got.Documents, found)
		}
	}
	return nil
}

func (t *tx) writeDocuments(ctx context.Context, c *conn) error {
	for _, doc := range t.c.Documents {
		if err := c.exec(ctx, `INSERT INTO documents (kind, id, parent, sequence, version, update_time, body, crc) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
			ON CONFLICT DO UPDATE SET parent = excluded.parent, sequence = excluded.sequence, version = excluded.version,
			update_time = excluded.update_time, body = excluded.body, crc = excluded.crc`,
			doc.Kind, doc.ID, doc.Parent, doc.Sequence, doc.Version, float64(doc.UpdateTime), []byte(doc.Body), t.d.codec.sum(doc.Body)); err != nil {
			return err
		}
	}
	for _, key := range t.c.DeletedDocuments {
		if err := c.exec(ctx, "DELETE FROM documents WHERE kind = ? AND id = ?", key.Kind, key.ID); err != nil {
			return err
		}
	}
	return nil
}

// Document implements driver.Driver.
func (d *Driver) Document(ctx context.Context, key driver.DocumentKey) (agl.Document, error) {
	var found *agl.Document
	err := d.readers.do(ctx, func(c *conn) (err error) {
		found, err = d.readDocument(ctx, c, key)
		return err
	})
	switch {
	case err != nil:
		return agl.Document{}, fault(d.path, err)
	case found == nil:
		return agl.Document{}, agl.Errorf(agl.CodeNotFound, "%s %s not found", key.Kind, key.ID)
	}
	return *found, nil
}

// QueryDocuments implements driver.Driver.
func (d *Driver) QueryDocuments(ctx context.Context, p agl.QueryDocumentsParams) (agl.Page[agl.Document], error) {
	q := sqlstore.SQLite.Documents(p)
	return find(ctx, d, agl.Paging{Limit: p.Limit, Offset: p.Offset}, &q, "documents AS d", documentColumns, d.scanDocument)
}

func (e *exporter) documents(ctx context.Context) error {
	return e.c.query(ctx, "SELECT "+documentColumns+" FROM documents AS d ORDER BY d.kind, d.id", nil, func(r row) error {
		found, err := e.d.scanDocument(r)
		if err != nil {
			return err
		}
		return e.give(driver.Record{Document: found})
	})
}

func (k *checker) documents(ctx context.Context) error {
	return k.c.query(ctx, "SELECT "+documentColumns+" FROM documents AS d", nil, func(r row) error {
		where := r.text(0) + " " + r.text(1)
		found, err := k.d.scanDocument(r)
		switch {
		case err != nil:
			k.damaged(where, err, "the document is lost")
		case found.Version < 1:
			k.found(where, "its version is "+itoa(found.Version))
		case !found.Body.IsValid(rawjson.Options()):
			k.found(where, "it is not a JSON document")
		}
		return nil
	})
}
