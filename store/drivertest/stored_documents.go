package drivertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

func storedDocumentTests() map[string]func(*harness) {
	return map[string]func(*harness){
		"stored documents":                testStoredDocuments,
		"stored documents of a series":    testSeries,
		"stored documents byte for byte":  testStoredBytes,
		"stored documents and one commit": testStoredTogether,
	}
}

func document(kind, id, parent string, sequence int64) *agl.Document {
	return &agl.Document{
		Kind: kind, ID: id, Parent: parent, Sequence: sequence, Version: 1, UpdateTime: 1.5, Body: jsontext.Value(`{"id":"` + id + `"}`),
	}
}

// found describes the page of a query.
func (d *harness) found(p agl.QueryDocumentsParams) string {
	d.Helper()
	if p.Limit == 0 {
		p.Limit = -1
	}
	page := must(d.QueryDocuments(d.ctx, p))(d)
	ids := make([]string, len(page.Items))
	for i := range page.Items {
		ids[i] = page.Items[i].ID
	}
	return fmt.Sprintf("%s of %d", strings.Join(ids, " "), page.Total)
}

func testStoredDocuments(d *harness) {
	key := func(id string) driver.DocumentKey { return driver.DocumentKey{Kind: "run", ID: id} }
	if _, err := d.Document(d.ctx, key("a")); !errors.Is(err, agl.ErrNotFound) {
		d.Errorf("a document that does not exist: error %v, want ErrNotFound", err)
	}
	equal(d, "loaded of none", len(d.load(driver.LoadParams{Documents: []driver.DocumentKey{key("a")}}).Documents), 0)
	d.apply(driver.Changes{Documents: []*agl.Document{document("run", "b", "", 0), document("run", "a", "", 0), document("key", "c", "", 0)}})
	got := d.load(driver.LoadParams{Documents: []driver.DocumentKey{key("a"), key("x"), key("b")}}).Documents
	slices.SortFunc(got, func(x, y *agl.Document) int { return strings.Compare(x.ID, y.ID) })
	if len(got) != 2 || string(got[0].AppendJSON(nil)) != string(document("run", "a", "", 0).AppendJSON(nil)) || got[1].ID != "b" {
		d.Errorf("loaded %v, want a and b", got)
	}
	equal(d, "by id", d.found(agl.QueryDocumentsParams{Kind: "run"}), "a b of 2")
	equal(d, "of every kind", d.found(agl.QueryDocumentsParams{}), "c a b of 3")
	replaced := document("run", "a", "p", 9)
	replaced.Version, replaced.Body = 2, jsontext.Value(`[1]`)
	d.apply(driver.Changes{Documents: []*agl.Document{replaced}})
	one := must(d.Document(d.ctx, key("a")))(d)
	equal(d, "read", string(one.AppendJSON(nil)), string(replaced.AppendJSON(nil)))
	equal(d, "where it was", d.found(agl.QueryDocumentsParams{Kind: "run", Parent: agl.Some("")}), "b of 1")
	equal(d, "where it is", d.found(agl.QueryDocumentsParams{Kind: "run", Parent: agl.Some("p")}), "a of 1")
	d.apply(driver.Changes{DeletedDocuments: []driver.DocumentKey{key("a"), key("x")}})
	if _, err := d.Document(d.ctx, key("a")); !errors.Is(err, agl.ErrNotFound) {
		d.Errorf("a deleted document: error %v, want ErrNotFound", err)
	}
	equal(d, "the rest", d.found(agl.QueryDocumentsParams{}), "c b of 2")
}

func testSeries(d *harness) {
	var all []*agl.Document
	for _, n := range []int64{5, -3, 1 << 60, 0, 5} {
		all = append(all, document("metric", fmt.Sprintf("%d.%d", n, len(all)), "run", n))
	}
	d.apply(driver.Changes{Documents: append(all, document("metric", "other", "run-2", 5), document("run", "run", "run", 5))})
	run := func(p agl.QueryDocumentsParams) string {
		d.Helper()
		p.Kind, p.Parent = "metric", agl.Some("run")
		return d.found(p)
	}
	equal(d, "in order", run(agl.QueryDocumentsParams{}), "-3.1 0.3 5.0 5.4 1152921504606846976.2 of 5")
	equal(d, "backwards", run(agl.QueryDocumentsParams{Descending: true}), "1152921504606846976.2 5.4 5.0 0.3 -3.1 of 5")
	equal(d, "a part", run(agl.QueryDocumentsParams{From: agl.Some[int64](0), To: agl.Some[int64](5)}), "0.3 5.0 5.4 of 3")
	equal(d, "a page", run(agl.QueryDocumentsParams{Limit: 2, Offset: 1}), "0.3 5.0 of 5")
	equal(d, "behind the end", run(agl.QueryDocumentsParams{Offset: 9}), " of 5")
	equal(d, "the last one", run(agl.QueryDocumentsParams{Limit: 1, Descending: true}), "1152921504606846976.2 of 5")
	equal(d, "the kind", d.found(agl.QueryDocumentsParams{Kind: "metric", Limit: 2}), "-3.1 0.3 of 6")
}

func testStoredBytes(d *harness) {
	want := map[string]*agl.Document{}
	var c driver.Changes
	for name, body := range documents() {
		doc := document("doc", name, name, 1)
		doc.Body = jsontext.Value(body)
		want[name] = doc
		c.Documents = append(c.Documents, doc)
	}
	for _, text := range texts() {
		doc := document("text", text, text, 1)
		c.Documents = append(c.Documents, doc)
	}
	d.apply(c)
	for name, doc := range want {
		got, err := d.Document(d.ctx, driver.DocumentKey{Kind: "doc", ID: name})
		if err != nil || string(got.Body) != string(doc.Body) {
			d.Errorf("%s: read %.200q, error %v, want %.200q", name, got.Body, err, doc.Body)
		}
	}
	for _, text := range texts() {
		equal(d, "text", d.found(agl.QueryDocumentsParams{Kind: "text", Parent: agl.Some(text)}), text+" of 1")
	}
}

// testStoredTogether writes a document with a rollout, and neither if the transaction is
// discarded.
func testStoredTogether(d *harness) {
	b := d.begin()
	var got driver.Loaded
	d.ok(b.Load(d.ctx, &driver.LoadParams{Documents: []driver.DocumentKey{{Kind: "run", ID: "a"}}}, &got))
	b.Discard()
	equal(d, "discarded", d.found(agl.QueryDocumentsParams{}), " of 0")
	d.apply(driver.Changes{
		Rollouts: created(rollout("r", agl.RolloutQueuing)), Documents: []*agl.Document{document("run", "a", "", 0)},
		Events: []agl.Event{{Kind: agl.EventDocument, Document: "run/a", Status: "written"}},
	})
	equal(d, "queue", d.claim(9), "r")
	equal(d, "document", d.found(agl.QueryDocumentsParams{}), "a of 1")
	list := must(d.Events(d.ctx, "", 0))(d)
	d.apply(driver.Changes{
		DeletedDocuments: []driver.DocumentKey{{Kind: "run", ID: "a"}},
		Events:           []agl.Event{{Kind: agl.EventDocument, Document: "run/a", Status: "deleted"}},
	})
	list = must(d.Events(d.ctx, list.Last, 9))(d)
	if len(list.Events) != 1 || list.Events[0].Kind != agl.EventDocument || list.Events[0].Document != "run/a" ||
		list.Events[0].Status != "deleted" {
		d.Errorf("events %v, want one about run/a", list.Events)
	}
}
