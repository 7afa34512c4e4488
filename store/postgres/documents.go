package postgres

import (
	"cmp"
	"context"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/sqlstore"
)

const (
	documentColumns = `d.kind, d.id, d.parent, d.sequence, d.version, d.update_time, d.checksum, d.body`
	documentArrays  = `$1::text[], $2::text[], $3::text[], $4::int8[], $5::int8[], $6::float8[], $7::int4[], $8::bytea[]`
	documentNames   = `kind, id, parent, sequence, version, update_time, checksum, body`

	lockDocuments = `SELECT ` + documentColumns + ` FROM documents d
		WHERE (d.kind, d.id) IN (SELECT v.kind, v.id FROM unnest($1::text[], $2::text[]) v (kind, id)) ORDER BY d.kind, d.id FOR UPDATE`
	insertDocuments = `INSERT INTO documents (` + documentNames + `)
		SELECT ` + documentNames + ` FROM unnest(` + documentArrays + `) v (` + documentNames + `)`
	putDocuments = insertDocuments + ` ON CONFLICT (kind, id) DO UPDATE
		SET parent = excluded.parent, sequence = excluded.sequence, version = excluded.version, update_time = excluded.update_time,
			checksum = excluded.checksum, body = excluded.body`
	deleteDocuments = `DELETE FROM documents d USING unnest($1::text[], $2::text[]) v (kind, id) WHERE d.kind = v.kind AND d.id = v.id`
)

// document reads a document and verifies its checksum.
func (r *row) document() (agl.Document, error) {
	out := agl.Document{
		Kind: r.text(), ID: r.text(), Parent: r.text(), Sequence: r.int8(), Version: r.int8(), UpdateTime: r.time(),
	}
	sum := int32(r.int4())
	if out.Body = r.json(); checksum(out.Body) != sum {
		return agl.Document{}, errStored("the body of %s %s does not match its checksum", out.Kind, out.ID)
	}
	return out, nil
}

// documentName returns the key of a document in batch.documents.
func documentName(kind, id string) string { return kind + "/" + id }

func documentKeys(p *params, keys []driver.DocumentKey) [][]byte {
	return [][]byte{
		textArray(p, keys, func(k driver.DocumentKey) string { return k.Kind }),
		textArray(p, keys, func(k driver.DocumentKey) string { return k.ID }),
	}
}

func (w *writes) documents() {
	// Every server locks the rows in the same order.
	rows := slices.SortedFunc(slices.Values(w.changes.Documents), func(a, b *agl.Document) int {
		return cmp.Or(cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.ID, b.ID))
	})
	name := func(d *agl.Document) string { return documentName(d.Kind, d.ID) }
	upsert(w, insertDocuments, putDocuments, rows, w.batch.documents, name, func(p *params, rows []*agl.Document) [][]byte {
		return [][]byte{
			textArray(p, rows, func(d *agl.Document) string { return d.Kind }),
			textArray(p, rows, func(d *agl.Document) string { return d.ID }),
			textArray(p, rows, func(d *agl.Document) string { return d.Parent }),
			int8Array(p, rows, func(d *agl.Document) int64 { return d.Sequence }),
			int8Array(p, rows, func(d *agl.Document) int64 { return d.Version }),
			floatArray(p, rows, func(d *agl.Document) float64 { return float64(d.UpdateTime) }),
			int4Array(p, rows, func(d *agl.Document) int32 { return checksum(d.Body) }),
			bytesArray(p, rows, func(d *agl.Document) []byte { return d.Body }),
		}
	})
	addRows(w, deleteDocuments, w.changes.DeletedDocuments, documentKeys)
}

// Document implements driver.Driver.
func (d *Driver) Document(ctx context.Context, key driver.DocumentKey) (agl.Document, error) {
	return one(ctx, d, "read a document", agl.Errorf(agl.CodeNotFound, "%s %s not found", key.Kind, key.ID), (*row).document,
		`SELECT `+documentColumns+` FROM documents d WHERE d.kind = $1 AND d.id = $2`, text(key.Kind), text(key.ID))
}

// QueryDocuments implements driver.Driver.
func (d *Driver) QueryDocuments(ctx context.Context, p agl.QueryDocumentsParams) (agl.Page[agl.Document], error) {
	q := sqlstore.Postgres.Documents(p)
	s := searchFor("documents", documentColumns, "documents d", &q, agl.Paging{Limit: p.Limit, Offset: p.Offset}, nil)
	return find(ctx, d, s, nil, (*row).document)
}

const allDocuments = `SELECT ` + documentColumns + ` FROM documents d ORDER BY d.kind, d.id`

// checkDocument reads a document for a check.
func checkDocument(r *row) (string, error) {
	where := string(r.values[0]) + " " + string(r.values[1])
	out, err := r.document()
	if err == nil && !out.Body.IsValid(rawjson.Options()) {
		err = errStored("the body of %s is not a JSON document", where)
	}
	return where, err
}
