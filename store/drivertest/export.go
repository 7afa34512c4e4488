package drivertest

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/archive"
	"github.com/agl-go/agl/store/driver"
)

func exportTests() map[string]func(*harness) {
	return map[string]func(*harness){
		"export in order":             testExport,
		"export is of one moment":     testExportMoment,
		"export stops when asked":     testExportStops,
		"export of an empty database": testExportEmpty,
		"export follows what is gone": testExportGone,
		"export tells a key once":     testExportKeys,
		"export and import":           testCopy,
	}
}

// export writes every record in a line.
func (d *harness) export() []string {
	d.Helper()
	var out []string
	for r := range d.records() {
		out = append(out, describe(r))
	}
	return out
}

func describe(r driver.Record) string {
	switch {
	case r.Resources != nil:
		return "resources " + r.Resources.ResourcesID
	case r.Worker != nil:
		return "worker " + r.Worker.WorkerID
	case r.Rollout != nil:
		place := ""
		if r.Rollout.Place.Valid {
			place = " queued"
		}
		if r.Rollout.Evicted {
			place += " evicted"
		}
		return "rollout " + r.Rollout.Rollout.RolloutID + place
	case r.Attempt != nil:
		return "attempt " + r.Attempt.RolloutID + "/" + r.Attempt.AttemptID
	case r.Span != nil:
		return fmt.Sprintf("span %s/%s/%s %d", r.Span.RolloutID, r.Span.AttemptID, r.Span.SpanID, r.Span.SequenceID)
	case r.Sequence != nil:
		return fmt.Sprintf("sequence %s %d", r.Sequence.RolloutID, r.Sequence.Last)
	case r.Document != nil:
		return "document " + r.Document.Kind + "/" + r.Document.ID
	case r.Key != nil:
		return "key " + r.Key.Scope
	case r.State != nil:
		return fmt.Sprintf("state %v %s", r.State.QueueClosed, r.State.LatestResources.V)
	}
	return "nothing"
}

// fillForExport stores records of every kind.
func (d *harness) fillForExport() {
	d.Helper()
	a1, a2, b1 := attempt("z", 1, agl.AttemptFailed, "w"), attempt("z", 2, agl.AttemptRunning, "w"), attempt("a", 1, agl.AttemptFailed, "")
	d.apply(driver.Changes{
		Resources: []*agl.ResourcesUpdate{{ResourcesID: "y", Version: 1}, {ResourcesID: "x", Version: 1}},
		Workers:   []*agl.Worker{{WorkerID: "w", Status: agl.WorkerBusy}, {WorkerID: "v", Status: agl.WorkerIdle}},
		Rollouts: created(rollout("z", agl.RolloutRunning), rollout("a", agl.RolloutRequeuing), rollout("q2", agl.RolloutQueuing),
			rollout("q1", agl.RolloutPreparing)),
		Attempts: begun(a1, b1, a2),
		Spans: []driver.SpanRecord{
			spanOf(a1, "c", 7), spanOf(b1, "s", 1), spanOf(a1, "b", 3), spanOf(a2, "a", 1), spanOf(a1, "a", 9),
		},
		Sequences: []driver.Sequence{{RolloutID: "z", Last: 9}, {RolloutID: "ghost", Last: 4}, {RolloutID: "a", Last: 1}},
		Keys: []driver.IdempotencyRecord{{
			Scope: "enqueue  k", Fingerprint: "f", CreateTime: d.now, Made: []driver.AttemptKey{{RolloutID: "a"}},
		}},
		QueueClosed: agl.Some(true),
		Documents: []*agl.Document{
			{Kind: "run", ID: "2", Version: 3, UpdateTime: 5.25, Body: jsontext.Value(`{"b":1.0, "a":[]}`)},
			{Kind: "metric", ID: "m", Parent: "2", Sequence: -7, Version: 1, Body: jsontext.Value(`0`)},
			{Kind: "run", ID: "1", Version: 1, Body: jsontext.Value(`null`)},
		},
		Events: []agl.Event{{Kind: agl.EventQueue, Status: "closed"}},
	})
	d.apply(driver.Changes{
		Rollouts:  append([]driver.RolloutChange{{Rollout: rollout("q1", agl.RolloutQueuing), Front: true}}, created(ended("gone", 3))...),
		Resources: []*agl.ResourcesUpdate{{ResourcesID: "y", Version: 2}}, LatestResources: agl.Some("y"),
	})
	d.apply(driver.Changes{EvictedRollouts: []string{"gone"}})
}

func testExport(d *harness) {
	d.fillForExport()
	got := d.export()
	want := []string{
		"resources y", "resources x", "worker w", "worker v",
		"rollout z", "attempt z/at-1", "attempt z/at-2",
		"span z/at-1/c 7", "span z/at-1/b 3", "span z/at-2/a 1", "span z/at-1/a 9",
		"rollout a queued", "attempt a/at-1", "span a/at-1/s 1",
		"rollout q2 queued", "rollout q1 queued", "rollout gone evicted",
		"sequence a 1", "sequence ghost 4", "sequence z 9",
		"document metric/m", "document run/1", "document run/2", "key enqueue  k", "state true y",
	}
	// Sequences may be exported in any order.
	from := slices.IndexFunc(got, func(s string) bool { return strings.HasPrefix(s, "sequence") })
	if from < 0 || from+3 > len(got) {
		d.Fatalf("exported %q, want three sequences", got)
	}
	slices.Sort(got[from : from+3])
	if !slices.Equal(got, want) {
		d.Errorf("exported\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	places := map[int64]string{}
	for r := range d.records() {
		if r.Rollout != nil && r.Rollout.Place.Valid {
			places[r.Rollout.Place.V] = r.Rollout.Rollout.RolloutID
		}
	}
	var queue []string
	for _, place := range slices.Sorted(maps.Keys(places)) {
		queue = append(queue, places[place])
	}
	equal(d, "queue by place", strings.Join(queue, " "), "q1 a q2")
	equal(d, "queue", d.claim(9), "q1 a q2")
}

// testExportMoment changes records during an export.
func testExportMoment(d *harness) {
	d.fillForExport()
	want := d.export()
	var got []string
	for r := range d.records() {
		if len(got) == 0 {
			// This blocks forever if the export locks out writers.
			d.apply(driver.Changes{
				Rollouts: append(created(rollout("new", agl.RolloutQueuing)), changed(rollout("q2", agl.RolloutPreparing))...),
				Workers:  []*agl.Worker{{WorkerID: "u", Status: agl.WorkerIdle}}, DeletedRollouts: []string{"gone"},
				Sequences: []driver.Sequence{{RolloutID: "new", Last: 1}}, QueueClosed: agl.Some(false),
			})
		}
		got = append(got, describe(r))
	}
	if !slices.Equal(got, want) {
		d.Errorf("exported\n%s\nwant what there was when it began\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if after := d.export(); slices.Equal(after, want) {
		d.Error("a later export does not have the changes")
	}
}

func testExportStops(d *harness) {
	d.fillForExport()
	for range 3 {
		n := 0
		for range d.records() {
			if n++; n == 7 {
				break
			}
		}
	}
	// The export must not hold a lock that a writer waits for.
	d.apply(driver.Changes{Workers: []*agl.Worker{{WorkerID: "u", Status: agl.WorkerIdle}}})
}

func testExportEmpty(d *harness) {
	if got := d.export(); !slices.Equal(got, []string{"state false "}) {
		d.Errorf("exported %q, want the state alone", got)
	}
}

func testExportGone(d *harness) {
	d.fillForExport()
	d.apply(driver.Changes{
		DeletedRollouts: []string{"z", "q2"}, DeletedDocuments: []driver.DocumentKey{{Kind: "run", ID: "2"}}, ForgottenKeys: []string{"enqueue  k"},
		Rollouts: changed(rollout("q1", agl.RolloutPreparing)),
	})
	got := d.export()
	slices.Sort(got)
	want := []string{
		"attempt a/at-1", "document metric/m", "document run/1", "resources x", "resources y", "rollout a queued", "rollout gone evicted", "rollout q1",
		"sequence a 1", "sequence ghost 4", "span a/at-1/s 1", "state true y", "worker v", "worker w",
	}
	if !slices.Equal(got, want) {
		d.Errorf("exported\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

func testExportKeys(d *harness) {
	key := driver.IdempotencyRecord{Scope: "op  k", Fingerprint: "f", CreateTime: d.now}
	for range 2 {
		d.apply(driver.Changes{Keys: []driver.IdempotencyRecord{key}})
	}
	d.now++
	key.CreateTime, key.Fingerprint = d.now, "g"
	d.apply(driver.Changes{Keys: []driver.IdempotencyRecord{key}})
	if got := d.export(); !slices.Equal(got, []string{"key op  k", "state false "}) {
		d.Errorf("exported %q, want the key once", got)
	}
	for r := range d.records() {
		if r.Key != nil {
			equal(d, "fingerprint", r.Key.Fingerprint, "g")
		}
	}
}

// dump returns everything that a driver exports, without the numbers of places.
func (d *harness) dump() []string {
	d.Helper()
	var out, sequences []string
	for r := range d.records() {
		line := describe(r)
		switch {
		case r.Resources != nil:
			line += string(r.Resources.AppendJSON(nil))
		case r.Worker != nil:
			line += string(r.Worker.AppendJSON(nil))
		case r.Rollout != nil:
			line += string(r.Rollout.Rollout.AppendJSON(nil))
		case r.Attempt != nil:
			line += string(r.Attempt.AppendJSON(nil))
		case r.Document != nil:
			line += string(r.Document.AppendJSON(nil))
		case r.Span != nil:
			line += fmt.Sprintf("%+v", *r.Span)
		case r.Key != nil && strings.HasPrefix(r.Key.Scope, "import "):
			continue // the import itself has written it
		case r.Key != nil:
			line += fmt.Sprintf("%+v", *r.Key)
		case r.Sequence != nil:
			sequences = append(sequences, line)
			continue
		}
		out = append(out, line)
	}
	slices.Sort(sequences)
	return append(append(out, sequences...), d.claim(99))
}

// testCopy imports everything into another database of the same kind, and from that into
// a third one.
func testCopy(d *harness) {
	d.fillForExport()
	// An import keeps real time for idempotency records: these are too old for it.
	d.apply(driver.Changes{ForgottenKeys: []string{"enqueue  k"}})
	for name, doc := range documents() {
		raw := jsontext.Value(doc)
		r, a := rollout("r-"+name, agl.RolloutQueuing), attempt("r-"+name, 1, agl.AttemptFailed, "w")
		r.Input, r.Metadata, a.Metadata = raw, raw, raw
		span := agl.Span{
			RolloutID: a.RolloutID, AttemptID: a.AttemptID, SpanID: name, SequenceID: 1, Name: name, TraceID: "t", ParentID: agl.Some("p"),
			StartTime: at(1), Extra: jsontext.Value(`{"x":` + doc + `}`),
		}
		d.apply(driver.Changes{Rollouts: created(r), Attempts: begun(a), Spans: []driver.SpanRecord{{
			SpanKey:    driver.SpanKey{RolloutID: a.RolloutID, AttemptID: a.AttemptID, SpanID: name},
			SequenceID: 1, Name: name, TraceID: "t", ParentID: "p", StartTime: at(1), Payload: span.AppendJSON(nil),
		}}})
	}
	want := d.dump()
	source := d
	for range 2 {
		var file bytes.Buffer
		wrote := must(archive.Export(d.ctx, source, &file))(d)
		copied := &harness{T: d.T, Driver: d.open(d), open: d.open, ctx: d.ctx, now: d.now}
		read := must(archive.Import(d.ctx, copied, &file, nil))(d)
		equal(d, "counts", read, wrote)
		got := copied.dump()
		equal(d, "records", len(got), len(want))
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				d.Fatalf("the copy holds %.500s, want %.500s", got[i], want[i])
			}
		}
		source = copied
	}
}
