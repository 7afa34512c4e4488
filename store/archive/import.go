package archive

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/internal/spanjson"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/internal/spanchain"
)

// One commit of an import writes at most about batchBytes of values and batchRecords records, which also bounds the
// memory that the import takes.
const (
	batchBytes   = 4 << 20
	batchRecords = 2000
)

// Import reads an export into a database, in batches that are committed one by one; progress, if not nil, is called
// after each with the counts so far. Run again with the same export, it continues an interrupted import and skips
// records that are there. Until it has completed, no engine opens the database, and no server may use it. A database
// that holds anything else is ErrConflict. A damaged or missing line is ErrInvalid; the error has the line's number.
//
// The orders of creation and of the queue are kept. Events are not: readers of events get a reset.
func Import(ctx context.Context, d driver.Driver, r io.Reader, progress func(Counts)) (Counts, error) {
	if progress == nil {
		progress = func(Counts) {}
	}
	im := &importer{chains: spanchain.New(spandelta.DefaultMemory), driver: d, lines: newLineReader(r), progress: progress}
	err := im.run(ctx)
	return im.counts, err
}

// Check refuses what does not begin like an export that this program reads: ErrInvalid. The returned reader reads r from its start.
func Check(r io.Reader) (io.Reader, error) {
	var head bytes.Buffer
	im := &importer{lines: newLineReader(io.TeeReader(r, &head))}
	err := im.readHeader()
	if errors.Is(err, agl.ErrInvalid) && im.header.Format != formatName {
		err = agl.Errorf(agl.CodeInvalid, "this does not begin like a file of agl db export: %w", err)
	}
	return io.MultiReader(&head, r), err
}

type importer struct {
	driver   driver.Driver
	lines    *lineReader
	progress func(Counts)
	header   header
	counts   Counts
	state    *driver.State
	held     []heldRollout
	batch    batch
	chains   *spanchain.Shortener

	// The rollout whose attempts and spans are being read.
	rollout  string
	attempts map[string]struct{}
}

// heldRollout is a queued rollout that is held back until everything is imported,
// so that nobody can claim from a half-filled database.
type heldRollout struct {
	id     string
	place  int64
	status agl.RolloutStatus
	end    agl.Null[agl.Timestamp]
}

// hold marks a queued rollout as held back: it is preparing and has an end time, which no rollout of an engine has.
func hold(r agl.Rollout) *agl.Rollout {
	r.Status = agl.RolloutPreparing
	r.EndTime = agl.Some(r.StartTime)
	return &r
}

func isHeld(r *agl.Rollout) bool {
	return r.Status == agl.RolloutPreparing && r.EndTime == agl.Some(r.StartTime)
}

func (im *importer) run(ctx context.Context) error {
	if err := im.begin(ctx); err != nil {
		return err
	}
	for {
		l, err := im.lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return errCutOff(im.lines.number)
		case err != nil:
			return err
		case l.kind == kindTrailer:
			return im.end(ctx, l)
		}
		if err := im.add(l); err != nil {
			return err
		}
		if im.batch.records >= batchRecords || im.batch.bytes >= batchBytes {
			if err := im.flush(ctx); err != nil {
				return err
			}
		}
	}
}

// readHeader reads the first line.
func (im *importer) readHeader() error {
	l, err := im.lines.next()
	switch {
	case errors.Is(err, io.EOF):
		return agl.Errorf(agl.CodeInvalid, "the export is empty")
	case err != nil:
		return err
	case l.kind != kindHeader:
		return l.damaged("got a %s, must be the header", l.kind)
	}
	if err := l.decode(&im.header); err != nil {
		return err
	}
	switch h := im.header; {
	case h.Format != formatName || h.ExportID == "":
		return l.damaged("got format %q of export %q, must be %q", h.Format, h.ExportID, formatName)
	case h.Version != formatVersion:
		return agl.Errorf(agl.CodeInvalid, "the export has version %d, this program reads version %d: use the program that wrote it, or a newer one",
			h.Version, formatVersion)
	}
	return nil
}

// begin reads the header and checks that the database is empty, or holds a part of
// the same export.
func (im *importer) begin(ctx context.Context) error {
	if err := im.readHeader(); err != nil {
		return err
	}
	stats, err := im.driver.Statistics(ctx)
	if err != nil {
		return err
	}
	return im.commit(ctx, &driver.LoadParams{}, func(got *driver.Loaded, _ *driver.Changes) error {
		if len(got.Documents) > 0 {
			doc := got.Documents[0]
			if string(doc.Body) == string(im.marker().Body) {
				return nil // this import was interrupted
			}
			return agl.Errorf(agl.CodeConflict, "an import of another export was interrupted here: %s; run that one again, or import into an empty database", doc.Body)
		}
		for _, k := range got.Keys {
			if k.Scope != im.scope() {
				continue
			}
			if k.ResourcesID == importDone {
				return agl.Errorf(agl.CodeConflict, "the export %s has been imported here already", im.header.ExportID)
			}
			return nil
		}
		if stats.TotalRollouts+stats.TotalWorkers+stats.TotalResources > 0 {
			return im.notEmpty(ctx, &stats)
		}
		return im.noDocuments(ctx)
	})
}

// importDone marks the record of a completed import.
const importDone = "done"

// marker returns the document that a database has while it holds a part of this export.
func (im *importer) marker() *agl.Document {
	key := driver.UnfinishedImport()
	return &agl.Document{
		Kind: key.Kind, ID: key.ID, Version: 1, Body: append(rawjson.AppendString([]byte(`{"export_id":`), im.header.ExportID), '}'),
	}
}

func (im *importer) scope() string { return importScope + im.header.ExportID }

// notEmpty returns an error that names what the database holds.
func (im *importer) notEmpty(ctx context.Context, stats *agl.Statistics) error {
	one := agl.Paging{Limit: 1}
	first := ""
	var err error
	switch {
	case stats.TotalRollouts > 0:
		var page agl.Page[agl.AttemptedRollout]
		page, err = im.driver.QueryRollouts(ctx, agl.QueryRolloutsParams{Paging: one})
		for i := range page.Items {
			first = "rollout " + page.Items[i].RolloutID
		}
	case stats.TotalResources > 0:
		var page agl.Page[agl.ResourcesUpdate]
		page, err = im.driver.QueryResources(ctx, agl.QueryResourcesParams{Paging: one})
		for i := range page.Items {
			first = "resources " + page.Items[i].ResourcesID
		}
	default:
		var page agl.Page[agl.Worker]
		page, err = im.driver.QueryWorkers(ctx, agl.QueryWorkersParams{Paging: one})
		for i := range page.Items {
			first = "worker " + page.Items[i].WorkerID
		}
	}
	if err != nil {
		return err
	}
	return agl.Errorf(agl.CodeConflict,
		"the database holds other data: %d rollouts, %d resources and %d workers, the first is %s; import into an empty one",
		stats.TotalRollouts, stats.TotalResources, stats.TotalWorkers, first)
}

// noDocuments rejects a database that holds documents other than the note of its clock.
func (im *importer) noDocuments(ctx context.Context) error {
	page, err := im.driver.QueryDocuments(ctx, agl.QueryDocumentsParams{Limit: 2}) //nolint:mnd // one, and that of the clock
	if err != nil {
		return err
	}
	clock := driver.ClockNote()
	others := slices.DeleteFunc(page.Items, func(d agl.Document) bool { return d.Kind == clock.Kind && d.ID == clock.ID })
	if len(others) == 0 {
		return nil
	}
	return agl.Errorf(agl.CodeConflict, "the database holds documents, such as %s %s; import into an empty one", others[0].Kind, others[0].ID)
}

// add adds a record to the batch.
func (im *importer) add(l *line) (err error) {
	if im.state != nil {
		return l.damaged("got a %s after the state, which is the last record", l.kind)
	}
	b := &im.batch
	switch l.kind {
	case kindResources:
		err = read(l, &b.resources)
	case kindWorker:
		err = read(l, &b.workers)
	case kindRollout:
		err = im.addRollout(l)
	case kindAttempt:
		err = im.addAttempt(l)
	case kindSpan:
		err = im.addSpan(l)
	case kindSequence:
		var s sequenceValue
		err = l.decode(&s)
		b.sequences = append(b.sequences, driver.Sequence(s))
	case kindDocument:
		err = read(l, &b.documents)
	case kindKey:
		var k keyValue
		err = l.decode(&k)
		b.keys = append(b.keys, driver.IdempotencyRecord{Scope: k.Scope, Fingerprint: k.Fingerprint, CreateTime: agl.Timestamp(k.CreateTime), Made: k.Made, ResourcesID: k.ResourcesID})
	case kindState:
		var s stateValue
		err = l.decode(&s)
		im.state = (*driver.State)(&s)
	default:
		err = agl.Errorf(agl.CodeInvalid, "line %d of the export is a record of kind %q, which this program does not know: use the program that wrote it, or a newer one",
			l.number, l.kind)
	}
	im.counts.add(l.kind)
	b.records++
	b.bytes += len(l.value)
	return err
}

func (im *importer) addRollout(l *line) error {
	var v rolloutValue
	if err := l.decode(&v); err != nil {
		return err
	}
	im.rollout, im.attempts = v.Rollout.RolloutID, map[string]struct{}{}
	r := importedRollout{imported: imported[*agl.Rollout]{&v.Rollout, l.number}, evicted: v.Evicted}
	if status := v.Rollout.Status; status.Queued() {
		r.value, r.queued = hold(v.Rollout), status
		im.held = append(im.held, heldRollout{id: v.Rollout.RolloutID, place: v.Place.V, status: status, end: v.Rollout.EndTime})
	}
	im.batch.rollouts = append(im.batch.rollouts, r)
	return nil
}

func (im *importer) addAttempt(l *line) error {
	b := &im.batch
	if err := read(l, &b.attempts); err != nil {
		return err
	}
	a := b.attempts[len(b.attempts)-1].value
	if a.RolloutID != im.rollout {
		return l.damaged("its attempt is of rollout %q, but the preceding rollout is %q", a.RolloutID, im.rollout)
	}
	im.attempts[a.AttemptID] = struct{}{}
	return nil
}

func (im *importer) addSpan(l *line) error {
	if !l.value.IsValid(rawjson.Options()) {
		return l.damaged("its span is no JSON document")
	}
	var span agl.Span
	if err := spanjson.Parse(l.value, &span); err != nil {
		return l.damaged("its span does not decode: %w", err)
	}
	if _, found := im.attempts[span.AttemptID]; !found || span.RolloutID != im.rollout {
		return l.damaged("its span is of %q/%q, which is not an attempt of the preceding rollout, %q", span.RolloutID, span.AttemptID, im.rollout)
	}
	im.batch.spans = append(im.batch.spans, driver.NewSpanRecord(&span, l.value))
	return nil
}

// flush commits the batch.
func (im *importer) flush(ctx context.Context) error {
	b := &im.batch
	if b.records == 0 {
		return nil
	}
	if err := im.commit(ctx, b.want(), b.changes); err != nil {
		return err
	}
	*b = batch{}
	im.counts.Bytes = im.lines.read
	im.progress(im.counts)
	return nil
}

// commit runs one transaction. fill adds the changes, given what was found. Every commit also writes the record by
// which the import recognises itself.
func (im *importer) commit(ctx context.Context, want *driver.LoadParams, fill func(got *driver.Loaded, changes *driver.Changes) error) error {
	want.Keys = append(want.Keys, im.scope())
	want.Documents = append(want.Documents, driver.UnfinishedImport())
	return driver.Retry(func() error {
		tx, err := im.driver.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Discard()
		want.Now = agl.TimestampOf(time.Now())
		var got driver.Loaded
		if err := tx.Load(ctx, want, &got); err != nil {
			return err
		}
		changes := driver.Changes{Now: want.Now}
		if err := fill(&got, &changes); err != nil {
			return err
		}
		own := driver.IdempotencyRecord{Scope: im.scope(), Fingerprint: im.header.ExportID, CreateTime: want.Now}
		if changes.QueueClosed.Valid {
			own.ResourcesID = importDone
			changes.DeletedDocuments = append(changes.DeletedDocuments, driver.UnfinishedImport())
		} else {
			changes.Documents = append(changes.Documents, im.marker())
		}
		changes.Keys = append(changes.Keys, own)
		layouts := make([]*spandelta.Layout, len(changes.Spans))
		for i := range changes.Spans {
			layouts[i] = im.chains.Layout(changes.Spans[i].Payload)
		}
		im.chains.Shorten(changes.Spans, layouts)
		if err := tx.Apply(ctx, &changes); err != nil {
			return err
		}
		im.chains.Committed()
		return nil
	})
}

// end checks that everything was read, releases the rollouts that were held back,
// and sets the singletons.
func (im *importer) end(ctx context.Context, trailer *line) error {
	var counts Counts
	if err := trailer.decode(&counts); err != nil {
		return err
	}
	read := im.counts
	read.Bytes = 0
	switch {
	case counts != read:
		return trailer.damaged("it counts %+v, but there were %+v", counts, read)
	case im.state == nil:
		return trailer.damaged("there is no state before it")
	}
	if _, err := im.lines.next(); !errors.Is(err, io.EOF) {
		return agl.Errorf(agl.CodeInvalid, "line %d of the export is damaged: there must be nothing after the trailer", trailer.number+1)
	}
	if err := im.flush(ctx); err != nil {
		return err
	}
	slices.SortStableFunc(im.held, func(a, b heldRollout) int { return cmp.Compare(a.place, b.place) })
	for part := range slices.Chunk(im.held, batchRecords) {
		if err := im.release(ctx, part); err != nil {
			return err
		}
	}
	if err := im.verify(ctx); err != nil {
		return err
	}
	want := &driver.LoadParams{}
	if im.state.LatestResources.Valid {
		want.Resources = []string{im.state.LatestResources.V}
	}
	err := im.commit(ctx, want, func(got *driver.Loaded, c *driver.Changes) error {
		if len(want.Resources) > 0 && len(got.Resources) == 0 {
			return trailer.damaged("the latest resources are %s, which the export does not hold", want.Resources[0])
		}
		c.LatestResources = im.state.LatestResources
		c.QueueClosed = agl.Some(im.state.QueueClosed)
		return nil
	})
	im.counts.Bytes = im.lines.read
	if err == nil {
		im.progress(im.counts)
	}
	return err
}

// release queues rollouts that were held back, behind those already queued.
func (im *importer) release(ctx context.Context, part []heldRollout) error {
	want := &driver.LoadParams{}
	for i := range part {
		want.Rollouts = append(want.Rollouts, part[i].id)
	}
	return im.commit(ctx, want, func(got *driver.Loaded, c *driver.Changes) error {
		existing := make(map[string]*agl.Rollout, len(got.Rollouts))
		for _, r := range got.Rollouts {
			existing[r.Rollout.RolloutID] = r.Rollout
		}
		for i := range part {
			r := existing[part[i].id]
			switch {
			case r != nil && isHeld(r):
				queued := *r
				queued.Status, queued.EndTime = part[i].status, part[i].end
				c.Rollouts = append(c.Rollouts, driver.RolloutChange{Rollout: &queued})
			case r == nil || r.Status != part[i].status:
				return agl.Errorf(agl.CodeConflict, "rollout %q was changed during the import: no server may use the database", part[i].id)
			}
		}
		return nil
	})
}

// verify checks that the database has kept everything: a memory store may have evicted spans.
func (im *importer) verify(ctx context.Context) error {
	stats, err := im.driver.Statistics(ctx)
	if err != nil {
		return err
	}
	for _, n := range [...]struct {
		what      string
		got, want int
	}{
		{"resources", stats.TotalResources, im.counts.Resources},
		{"workers", stats.TotalWorkers, im.counts.Workers},
		{"rollouts", stats.TotalRollouts, im.counts.Rollouts},
		{"attempts", stats.TotalAttempts, im.counts.Attempts},
		{"spans", stats.TotalSpans, im.counts.Spans},
	} {
		if n.got < n.want {
			return agl.Errorf(agl.CodeExhausted, "the database has kept only %d of %d %s", n.got, n.want, n.what)
		}
	}
	return nil
}
