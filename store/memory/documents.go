package memory

import (
	"cmp"
	"context"
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
	out := make([]*agl.Document, 0, len(d.byKey))
	for _, doc := range d.byKey {
		out = append(out, doc)
	}
	slices.SortFunc(out, func(a, b *agl.Document) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.ID, b.ID))
	})
	return out
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
	page := agl.Page[agl.Document]{Items: []agl.Document{}, Limit: p.Limit, Offset: p.Offset}
	d.mu.RLock()
	defer d.mu.RUnlock()
	var candidates []*agl.Document
	if p.Parent.Valid && p.Kind != "" {
		candidates = d.documents.series[seriesKey{p.Kind, p.Parent.V}]
	} else {
		candidates = d.documents.sorted()
	}
	var found []*agl.Document
	for _, doc := range candidates {
		if (p.Kind == "" || doc.Kind == p.Kind) && (!p.Parent.Valid || doc.Parent == p.Parent.V) &&
			(!p.From.Valid || doc.Sequence >= p.From.V) && (!p.To.Valid || doc.Sequence <= p.To.V) {
			found = append(found, doc)
		}
	}
	if p.Descending {
		slices.Reverse(found)
	}
	page.Total = len(found)
	found = found[min(p.Offset, len(found)):]
	if p.Limit >= 0 {
		found = found[:min(p.Limit, len(found))]
	}
	for _, doc := range found {
		page.Items = append(page.Items, *doc)
	}
	return page, nil
}
