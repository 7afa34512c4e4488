package sqlstore

import "github.com/agl-go/agl"

// Documents builds a query of documents, table alias d.
func (d Dialect) Documents(p agl.QueryDocumentsParams) Query {
	b := builder{dialect: d}
	b.exactly("d.kind", p.Kind)
	order := agl.Ascending
	if p.Descending {
		order = agl.Descending
	}
	columns := []string{"d.kind" + direction(order), "d.id" + direction(order)}
	if p.Parent.Valid {
		b.add("d.parent = ?", p.Parent.V)
		columns[0] = "d.sequence" + direction(order)
	}
	if p.From.Valid {
		b.add("d.sequence >= ?", p.From.V)
	}
	if p.To.Valid {
		b.add("d.sequence <= ?", p.To.V)
	}
	return b.build(nil, agl.FilterAnd, columns, agl.Paging{Limit: p.Limit, Offset: p.Offset})
}
