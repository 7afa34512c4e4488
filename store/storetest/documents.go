package storetest

import (
	"errors"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// documentTests are skipped if the store is not an agl.DocumentStore.
func documentTests(a *area) {
	a.test("written, read and deleted", testDocuments)
	a.test("versions", testDocumentVersions)
	a.test("all writes or none", testDocumentsTogether)
	a.test("one event each, unless quiet", testDocumentEvents)
	a.test("a counter that many write", testDocumentCounter)
	a.test("refused", testDocumentsRefused)
	a.test("over a restart", testDocumentsRestart)
}

func (h *harness) documents() agl.DocumentStore {
	h.Helper()
	s, ok := h.Store.(agl.DocumentStore)
	if !ok {
		h.Skip("the store keeps no documents")
	}
	return s
}

func (h *harness) write(writes ...agl.DocumentWrite) []agl.Document {
	h.Helper()
	got := must(h.documents().WriteDocuments(h.ctx, agl.WriteDocumentsParams{Writes: writes}))(h)
	equal(h, "documents returned", len(got), len(writes))
	return got
}

func (h *harness) writeError(writes ...agl.DocumentWrite) error {
	return errorOf(h.documents().WriteDocuments(h.ctx, agl.WriteDocumentsParams{Writes: writes}))
}

func (h *harness) document(kind, id string) agl.Document {
	h.Helper()
	return must(h.documents().GetDocument(h.ctx, kind, id))(h)
}

func run(id, body string) agl.DocumentWrite {
	return agl.DocumentWrite{Kind: "run", ID: id, Body: jsontext.Value(body)}
}

func testDocuments(h *harness) {
	body := []byte(`{"a": 1.0}`)
	wrote := h.write(agl.DocumentWrite{Kind: "metric", ID: "m1", Parent: "r", Sequence: 3, Body: body})[0]
	copy(body, `xxxxxxxxxx`) // the caller's memory
	got := h.document("metric", "m1")
	equal(h, "read", string(got.AppendJSON(nil)), string(wrote.AppendJSON(nil)))
	equal(h, "body", string(got.Body), `{"a": 1.0}`)
	equal(h, "has a time", got.UpdateTime > 0, true)
	equal(h, "place", got.Parent+"/"+strconv.FormatInt(got.Sequence, 10)+"/"+strconv.FormatInt(got.Version, 10), "r/3/1")
	h.write(agl.DocumentWrite{Kind: "metric", ID: "m0", Parent: "r", Sequence: 4, Body: jsontext.Value(`1`)}, run("r", `{}`))
	page := must(h.documents().QueryDocuments(h.ctx, agl.QueryDocumentsParams{Kind: "metric", Parent: agl.Some("r"), Limit: 1, Offset: 1}))(h)
	equal(h, "second of the series", ids(page.Items, func(d *agl.Document) string { return d.ID }), "m0")
	equal(h, "total", page.Total, 2)
	page = must(h.documents().QueryDocuments(h.ctx, agl.QueryDocumentsParams{Kind: "metric"}))(h)
	equal(h, "by id", ids(page.Items, func(d *agl.Document) string { return d.ID }), "m0 m1")
	gone := h.write(agl.DocumentWrite{Kind: "metric", ID: "m1", Delete: true})[0]
	equal(h, "deleted", string(gone.Body), `{"a": 1.0}`)
	h.wantError(errorOf(h.documents().GetDocument(h.ctx, "metric", "m1")), agl.ErrNotFound, "metric m1 not found")
}

func testDocumentVersions(h *harness) {
	write := func(w agl.DocumentWrite, version int64) error {
		w.IfVersion = agl.Some(version)
		return h.writeError(w)
	}
	h.wantError(write(run("a", `1`), 1), agl.ErrConflict, "run a does not exist, if_version is 1")
	h.ok(write(run("a", `1`), 0))
	h.wantError(write(run("a", `2`), 0), agl.ErrConflict, "run a has version 1, if_version is 0")
	h.ok(write(run("a", `2`), 1))
	equal(h, "without a condition", h.write(run("a", `3`))[0].Version, 3)
	h.wantError(write(run("a", `4`), 2), agl.ErrConflict, "run a has version 3, if_version is 2")
	equal(h, "body", string(h.document("run", "a").Body), `3`)
	h.wantError(write(agl.DocumentWrite{Kind: "run", ID: "a", Delete: true}, 2), agl.ErrConflict, "")
	h.ok(write(agl.DocumentWrite{Kind: "run", ID: "a", Delete: true}, 3))
	h.wantError(h.writeError(agl.DocumentWrite{Kind: "run", ID: "a", Delete: true}), agl.ErrNotFound, "run a not found")
	h.ok(write(run("a", `1`), 0))
	equal(h, "made anew", h.document("run", "a").Version, 1)
}

func testDocumentsTogether(h *harness) {
	h.write(run("a", `1`))
	b := run("b", `1`)
	stale := run("a", `2`)
	stale.IfVersion = agl.Some[int64](7)
	h.wantError(h.writeError(b, stale), agl.ErrConflict, "")
	h.wantError(errorOf(h.documents().GetDocument(h.ctx, "run", "b")), agl.ErrNotFound, "")
	equal(h, "nothing", len(h.write()), 0)
}

func testDocumentEvents(h *harness) {
	h.documents()
	next, stop := h.follow(h.beginning())
	defer stop()
	quiet := run("counter", `1`)
	quiet.Quiet = true
	h.write(quiet, run("a", `1`))
	h.write(agl.DocumentWrite{Kind: "run", ID: "a", Delete: true})
	h.write(run("b", `1`))
	for _, want := range []string{"run/a written", "run/a deleted", "run/b written"} {
		e := next()
		equal(h, "kind", e.Kind, agl.EventDocument)
		equal(h, "event", e.Document+" "+e.Status, want)
	}
}

func testDocumentCounter(h *harness) {
	s := h.documents()
	const writers, times = 8, 5
	h.write(run("n", `0`))
	h.together(writers, func(int) error {
		for added := 0; added < times; {
			d, err := s.GetDocument(h.ctx, "run", "n")
			if err != nil {
				return err
			}
			n, err := strconv.Atoi(string(d.Body))
			if err != nil {
				return err
			}
			w := run("n", strconv.Itoa(n+1))
			w.IfVersion = agl.Some(d.Version)
			switch err = h.writeError(w); {
			case err == nil:
				added++
			case !errors.Is(err, agl.ErrConflict):
				return err
			}
		}
		return nil
	})
	got := h.document("run", "n")
	equal(h, "counted", string(got.Body), strconv.Itoa(writers*times))
	equal(h, "version", got.Version, writers*times+1)
}

func testDocumentsRefused(h *harness) {
	refused := func(w agl.DocumentWrite, message string) {
		h.Helper()
		h.wantError(h.writeError(w), agl.ErrInvalid, "writes[0]: "+message)
	}
	refused(agl.DocumentWrite{ID: "a", Body: jsontext.Value(`1`)}, `kind: got "", must be 1 to 64 of a-z, 0-9, - and _`)
	refused(agl.DocumentWrite{Kind: "a/b", ID: "a", Body: jsontext.Value(`1`)}, `kind: got "a/b", must be 1 to 64 of a-z, 0-9, - and _`)
	refused(run("", `1`), "id: empty, must be an id")
	refused(run("a", ``), `body: got "", must be a JSON document`)
	refused(agl.DocumentWrite{Kind: "run", ID: "a"}, "body: none given, must be a JSON document")
	refused(run("a", `{"a":`), `body: got "{\"a\":", must be a JSON document`)
	refused(run("a", `"`+strings.Repeat("x", agl.MaxDocumentBytes)+`"`), "body: got 1048578 bytes, must be at most 1048576")
	w := run("a", `1`)
	w.IfVersion = agl.Some[int64](-1)
	refused(w, "if_version: got -1, must be a version, or 0 for a document that must not exist")
	h.wantError(h.writeError(run("a", `1`), run("a", `2`)), agl.ErrInvalid, "writes[1]: run a is written twice")
	h.wantError(h.writeError(make([]agl.DocumentWrite, 1001)...), agl.ErrInvalid, "writes: got 1001, must be at most 1000")
	h.wantError(errorOf(h.documents().QueryDocuments(h.ctx, agl.QueryDocumentsParams{})), agl.ErrInvalid, "")
}

func testDocumentsRestart(h *harness) {
	h.documents()
	h.write(run("a", `1`), run("b", `1`))
	h.write(agl.DocumentWrite{Kind: "run", ID: "b", Delete: true}, run("a", `2`))
	h.restart()
	got := h.document("run", "a")
	equal(h, "body", string(got.Body), `2`)
	equal(h, "version", got.Version, 2)
	h.wantError(errorOf(h.documents().GetDocument(h.ctx, "run", "b")), agl.ErrNotFound, "")
}
