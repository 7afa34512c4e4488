package memory

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// documents keeps documents by their names, and each series in its order.
type documents struct {
	byKey  map[driver.DocumentKey]*agl.Document
	series map[seriesKey][]*agl.Document
}

// seriesKey names the documents of one kind that share a parent, which may be "".
type seriesKey struct{ kind, parent string }

func (d *documents) init() {
	d.byKey, d.series = map[driver.DocumentKey]*agl.Document{}, map[seriesKey][]*agl.Document{}
}

func inSeries(a, b *agl.Document) int {
	return cmp.Or(cmp.Compare(a.Sequence, b.Sequence), strings.Compare(a.ID, b.ID))
}

func (d *documents) put(cur *agl.Document) {
	key := driver.DocumentKey{Kind: cur.Kind, ID: cur.ID}
	d.remove(key)
	d.byKey[key] = cur
	series := seriesKey{cur.Kind, cur.Parent}
	at, _ := slices.BinarySearchFunc(d.series[series], cur, inSeries)
	d.series[series] = slices.Insert(d.series[series], at, cur)
}

func (d *documents) remove(key driver.DocumentKey) {
	was := d.byKey[key]
	if was == nil {
		return
	}
	delete(d.byKey, key)
	series := seriesKey{was.Kind, was.Parent}
	at, _ := slices.BinarySearchFunc(d.series[series], was, inSeries)
	if d.series[series] = slices.Delete(d.series[series], at, at+1); len(d.series[series]) == 0 {
		delete(d.series, series)
	}
}

// sorted returns all documents by kind and id.
func (d *documents) sorted() []*agl.Document {
	return slices.SortedFunc(maps.Values(d.byKey), func(a, b *agl.Document) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
	})
}

// Document implements driver.Driver.
func (d *Driver) Document(_ context.Context, key driver.DocumentKey) (agl.Document, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	doc := d.documents.byKey[key]
	if doc == nil {
		return agl.Document{}, agl.Errorf(agl.CodeNotFound, "%s %s not found", key.Kind, key.ID)
	}
	return *doc, nil
}

// QueryDocuments implements driver.Driver.
func (d *Driver) QueryDocuments(_ context.Context, p agl.QueryDocumentsParams) (agl.Page[agl.Document], error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var candidates []*agl.Document
	if p.Parent.Valid && p.Kind != "" {
		candidates = d.documents.series[seriesKey{p.Kind, p.Parent.V}]
	} else {
		candidates = d.documents.sorted()
	}
	if p.Descending {
		candidates = slices.Clone(candidates)
		slices.Reverse(candidates)
	}
	match := func(doc *agl.Document) bool {
		return (p.Kind == "" || doc.Kind == p.Kind) && (!p.Parent.Valid || doc.Parent == p.Parent.V) &&
			(!p.From.Valid || doc.Sequence >= p.From.V) && (!p.To.Valid || doc.Sequence <= p.To.V)
	}
	return find(candidates, agl.Paging{Limit: p.Limit, Offset: p.Offset}, match, nil, func(doc *agl.Document) agl.Document { return *doc }), nil
}
