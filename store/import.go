package store

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
	"github.com/agl-go/agl/internal/spanjson"
)

const (
	// importBytes and importRecords bound what one commit of an import writes, and
	// with it the memory that the import takes.
	importBytes   = 4 << 20
	importRecords = 2000
)

// Import reads an export into a database, by batches of which each is there for
// good; progress, when not nil, is called behind each with what has been read.
// An import that was interrupted goes on when it is run again with the same
// export, within the day for which databases keep idempotency records; records
// that are there are passed over. A database that holds anything else is
// refused with ErrConflict, a line that is damaged or missing is ErrInvalid and
// is named by its number. No server may use the database meanwhile.
//
// The order of creation and of the queue are kept, events are not: readers of
// them are told to look at everything anew.
func Import(ctx context.Context, d Driver, r io.Reader, progress func(Counts)) (Counts, error) {
	if progress == nil {
		progress = func(Counts) {}
	}
	im := &importer{driver: d, lines: newLineReader(r), progress: progress}
	err := im.run(ctx)
	return im.counts, err
}

// importer is an import under way.
type importer struct {
	driver   Driver
	lines    *lineReader
	progress func(Counts)
	header   exportHeader
	counts   Counts
	state    *State
	waiting  []queuedRollout
	batch    importBatch
	// The rollout whose attempts and spans are being read.
	rollout  string
	attempts map[string]struct{}
}

// importBatch is what one commit is to write, unless it is there already.
type importBatch struct {
	n, bytes  int
	rollouts  []importRollout
	attempts  []importOf[*agl.Attempt]
	workers   []importOf[*agl.Worker]
	resources []importOf[*agl.ResourcesUpdate]
	spans     []SpanRecord
	sequences []Sequence
	keys      []IdempotencyRecord
}

type importOf[T any] struct {
	value T
	line  int
}

type importRollout struct {
	importOf[*agl.Rollout]

	evicted bool
	queued  agl.RolloutStatus // what it is when it is not parked; "" when it is not to be queued
	end     agl.Null[agl.Timestamp]
}

// queuedRollout is a rollout that is to be queued when all are there.
type queuedRollout struct {
	id     string
	place  int64
	status agl.RolloutStatus
	end    agl.Null[agl.Timestamp]
}

// park keeps a rollout that is to be queued out of the queue until its turn
// comes. No rollout of an engine is preparing and has an end.
func park(r agl.Rollout) *agl.Rollout {
	r.Status = agl.RolloutPreparing
	r.EndTime = agl.Some(r.StartTime)
	return &r
}

func parked(r *agl.Rollout) bool {
	return r.Status == agl.RolloutPreparing && r.EndTime == agl.Some(r.StartTime)
}

func (im *importer) run(ctx context.Context) error {
	if err := im.begin(ctx); err != nil {
		return err
	}
	for {
		line, err := im.lines.next()
		switch {
		case errors.Is(err, io.EOF):
			return errCut(im.lines.number)
		case err != nil:
			return err
		case line.kind == kindTrailer:
			return im.end(ctx, line)
		}
		if err := im.add(line); err != nil {
			return err
		}
		if im.batch.n >= importRecords || im.batch.bytes >= importBytes {
			if err := im.flush(ctx); err != nil {
				return err
			}
		}
	}
}

// begin reads the header and makes sure that the database is empty, or holds a
// part of this very export.
func (im *importer) begin(ctx context.Context) error {
	line, err := im.lines.next()
	switch {
	case errors.Is(err, io.EOF):
		return agl.Errorf(agl.CodeInvalid, "the export is empty")
	case err != nil:
		return err
	case line.kind != kindHeader:
		return line.damaged("got a %s, must be the header", line.kind)
	}
	if err := line.decode(&im.header); err != nil {
		return err
	}
	switch h := im.header; {
	case h.Format != exportFormat || h.ExportID == "":
		return line.damaged("got format %q of export %q, must be %q", h.Format, h.ExportID, exportFormat)
	case h.Version != exportVersion:
		return agl.Errorf(agl.CodeInvalid, "the export is of version %d, this program knows %d: use the one that wrote it, or a newer one",
			h.Version, exportVersion)
	}
	stats, err := im.driver.Statistics(ctx)
	if err != nil {
		return err
	}
	return im.commit(ctx, &LoadParams{}, func(got *Loaded, changes *Changes) error {
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
			return im.clash(ctx, &stats)
		}
		return nil
	})
}

// importDone is in the record of an import that came to its end.
const importDone = "done"

func (im *importer) scope() string { return importScope + im.header.ExportID }

// clash names what is in the way.
func (im *importer) clash(ctx context.Context, stats *agl.Statistics) error {
	one := agl.Paging{Limit: 1}
	first := ""
	switch {
	case stats.TotalRollouts > 0:
		page, err := im.driver.QueryRollouts(ctx, agl.QueryRolloutsParams{Paging: one})
		if err != nil {
			return err
		}
		for i := range page.Items {
			first = "rollout " + page.Items[i].RolloutID
		}
	case stats.TotalResources > 0:
		page, err := im.driver.QueryResources(ctx, agl.QueryResourcesParams{Paging: one})
		if err != nil {
			return err
		}
		for i := range page.Items {
			first = "resources " + page.Items[i].ResourcesID
		}
	default:
		page, err := im.driver.QueryWorkers(ctx, agl.QueryWorkersParams{Paging: one})
		if err != nil {
			return err
		}
		for i := range page.Items {
			first = "worker " + page.Items[i].WorkerID
		}
	}
	return agl.Errorf(agl.CodeConflict,
		"the database holds other data: %d rollouts, %d resources and %d workers, the first is %s; import into an empty one",
		stats.TotalRollouts, stats.TotalResources, stats.TotalWorkers, first)
}

// add takes a record into the batch.
func (im *importer) add(l *exportLine) error {
	if im.state != nil {
		return l.damaged("got a %s behind the state, which is the last record", l.kind)
	}
	b := &im.batch
	switch l.kind {
	case kindResources:
		u := new(agl.ResourcesUpdate)
		if err := l.decode(u); err != nil {
			return err
		}
		b.resources = append(b.resources, importOf[*agl.ResourcesUpdate]{u, l.number})
	case kindWorker:
		w := new(agl.Worker)
		if err := l.decode(w); err != nil {
			return err
		}
		b.workers = append(b.workers, importOf[*agl.Worker]{w, l.number})
	case kindRollout:
		if err := im.addRollout(l); err != nil {
			return err
		}
	case kindAttempt:
		a := new(agl.Attempt)
		if err := l.decode(a); err != nil {
			return err
		}
		if a.RolloutID != im.rollout {
			return l.damaged("its attempt is of rollout %q, but the rollout before it is %q", a.RolloutID, im.rollout)
		}
		im.attempts[a.AttemptID] = struct{}{}
		b.attempts = append(b.attempts, importOf[*agl.Attempt]{a, l.number})
	case kindSpan:
		if !l.value.IsValid(rawjson.Options()) {
			return l.damaged("its span is no JSON document")
		}
		var span agl.Span
		if err := spanjson.Parse(l.value, &span); err != nil {
			return l.damaged("its span does not decode: %w", err)
		}
		if _, there := im.attempts[span.AttemptID]; !there || span.RolloutID != im.rollout {
			return l.damaged("its span is of %q/%q, which is no attempt of the rollout before it, %q", span.RolloutID, span.AttemptID, im.rollout)
		}
		b.spans = append(b.spans, newSpanRecord(&span, l.value))
	case kindSequence:
		var s struct {
			RolloutID string `json:"rollout_id"`
			Last      int64  `json:"last"`
		}
		if err := l.decode(&s); err != nil {
			return err
		}
		b.sequences = append(b.sequences, Sequence(s))
	case kindKey:
		if err := im.addKey(l); err != nil {
			return err
		}
	case kindState:
		var s struct {
			QueueClosed     bool             `json:"queue_closed"`
			LatestResources agl.Null[string] `json:"latest_resources"`
		}
		if err := l.decode(&s); err != nil {
			return err
		}
		state := State(s)
		im.state = &state
	default:
		return l.damaged("got a record of kind %q, which this program does not know", l.kind)
	}
	im.counts.add(l.kind)
	b.n++
	b.bytes += len(l.value)
	return nil
}

func (im *importer) addRollout(l *exportLine) error {
	var v struct {
		Place   agl.Null[int64] `json:"place"`
		Evicted bool            `json:"evicted"`
		Rollout agl.Rollout     `json:"rollout"`
	}
	if err := l.decode(&v); err != nil {
		return err
	}
	im.rollout, im.attempts = v.Rollout.RolloutID, map[string]struct{}{}
	r := importRollout{importOf: importOf[*agl.Rollout]{&v.Rollout, l.number}, evicted: v.Evicted}
	if status := v.Rollout.Status; status.Queued() {
		r.value, r.queued, r.end = park(v.Rollout), status, v.Rollout.EndTime
		im.waiting = append(im.waiting, queuedRollout{id: v.Rollout.RolloutID, place: v.Place.V, status: status, end: v.Rollout.EndTime})
	}
	im.batch.rollouts = append(im.batch.rollouts, r)
	return nil
}

func (im *importer) addKey(l *exportLine) error {
	var v struct {
		Scope       string        `json:"scope"`
		Fingerprint string        `json:"fingerprint"`
		CreateTime  agl.Timestamp `json:"create_time"`
		Made        []struct {
			RolloutID string `json:"rollout_id"`
			AttemptID string `json:"attempt_id"`
		} `json:"made"`
		ResourcesID string `json:"resources_id"`
	}
	if err := l.decode(&v); err != nil {
		return err
	}
	key := IdempotencyRecord{Scope: v.Scope, Fingerprint: v.Fingerprint, CreateTime: v.CreateTime, ResourcesID: v.ResourcesID}
	for _, made := range v.Made {
		key.Made = append(key.Made, AttemptKey(made))
	}
	im.batch.keys = append(im.batch.keys, key)
	return nil
}

// flush commits the batch.
func (im *importer) flush(ctx context.Context) error {
	b := &im.batch
	if b.n == 0 {
		return nil
	}
	want := b.want()
	if err := im.commit(ctx, want, b.changes); err != nil {
		return err
	}
	*b = importBatch{}
	im.counts.Bytes = im.lines.read
	im.progress(im.counts)
	return nil
}

// want names everything of the batch, to see what is there.
func (b *importBatch) want() *LoadParams {
	want := &LoadParams{}
	for _, r := range b.rollouts {
		want.Rollouts = append(want.Rollouts, r.value.RolloutID)
	}
	for _, a := range b.attempts {
		want.Attempts = append(want.Attempts, AttemptKey{a.value.RolloutID, a.value.AttemptID})
	}
	for _, w := range b.workers {
		want.Workers = append(want.Workers, w.value.WorkerID)
	}
	for _, u := range b.resources {
		want.Resources = append(want.Resources, u.value.ResourcesID)
	}
	for i := range b.spans {
		want.Spans = append(want.Spans, b.spans[i].SpanKey)
	}
	for _, k := range b.keys {
		want.Keys = append(want.Keys, k.Scope)
	}
	return want
}

// changes writes what is not there. What is there must be the same.
func (b *importBatch) changes(got *Loaded, c *Changes) error {
	rollouts := make(map[string]*agl.Rollout, len(got.Rollouts))
	for _, r := range got.Rollouts {
		rollouts[r.Rollout.RolloutID] = r.Rollout
	}
	for _, r := range b.rollouts {
		there := rollouts[r.value.RolloutID]
		if there == nil {
			rollouts[r.value.RolloutID] = r.value
			c.Rollouts = append(c.Rollouts, RolloutChange{Rollout: r.value, New: true})
			if r.evicted {
				c.EvictedRollouts = append(c.EvictedRollouts, r.value.RolloutID)
			}
			continue
		}
		if r.queued != "" && there.Status == r.queued {
			there = park(*there) // its turn had come before the interruption
		}
		if !sameJSON(there, r.value) {
			return errDiffers(r.line, "rollout", r.value.RolloutID)
		}
	}
	attempts := make(map[AttemptKey]*agl.Attempt, len(got.Attempts))
	for _, a := range got.Attempts {
		attempts[AttemptKey{a.RolloutID, a.AttemptID}] = a
	}
	for _, a := range b.attempts {
		key := AttemptKey{a.value.RolloutID, a.value.AttemptID}
		if there := attempts[key]; there == nil {
			attempts[key] = a.value
			c.Attempts = append(c.Attempts, AttemptChange{Attempt: a.value, New: true})
		} else if !sameJSON(there, a.value) {
			return errDiffers(a.line, "attempt", a.value.RolloutID+"/"+a.value.AttemptID)
		}
	}
	workers := make(map[string]*agl.Worker, len(got.Workers))
	for _, w := range got.Workers {
		workers[w.WorkerID] = w.Worker
	}
	for _, w := range b.workers {
		if there := workers[w.value.WorkerID]; there == nil {
			c.Workers = append(c.Workers, w.value)
		} else if !sameJSON(there, w.value) {
			return errDiffers(w.line, "worker", w.value.WorkerID)
		}
	}
	resources := make(map[string]*agl.ResourcesUpdate, len(got.Resources))
	for _, u := range got.Resources {
		resources[u.ResourcesID] = u
	}
	for _, u := range b.resources {
		if there := resources[u.value.ResourcesID]; there == nil {
			c.Resources = append(c.Resources, u.value)
		} else if !sameJSON(there, u.value) {
			return errDiffers(u.line, "resources", u.value.ResourcesID)
		}
	}
	b.spanChanges(got, c)
	c.Sequences = append(c.Sequences, b.sequences...)
	keys := make(map[string]struct{}, len(got.Keys))
	for _, k := range got.Keys {
		keys[k.Scope] = struct{}{}
	}
	for _, k := range b.keys {
		if _, there := keys[k.Scope]; !there {
			c.Keys = append(c.Keys, k)
		}
	}
	return nil
}

func (b *importBatch) spanChanges(got *Loaded, c *Changes) {
	spans := make(map[SpanKey]struct{}, len(got.Spans))
	for _, k := range got.Spans {
		spans[k] = struct{}{}
	}
	for i := range b.spans {
		if _, there := spans[b.spans[i].SpanKey]; !there {
			spans[b.spans[i].SpanKey] = struct{}{}
			c.Spans = append(c.Spans, b.spans[i])
		}
	}
}

func sameJSON[T rawjson.Appender](a, b T) bool {
	return bytes.Equal(a.AppendJSON(nil), b.AppendJSON(nil))
}

func errDiffers(line int, what, id string) error {
	return agl.Errorf(agl.CodeConflict, "line %d: the database has another %s %s than the export", line, what, id)
}

// commit runs one batch: fill adds to changes what is to be written, in view of
// what was found. Each commit keeps the record by which the import knows itself.
func (im *importer) commit(ctx context.Context, want *LoadParams, fill func(got *Loaded, changes *Changes) error) error {
	want.Keys = append(want.Keys, im.scope())
	for n := 0; ; n++ {
		err := im.tryCommit(ctx, want, fill)
		switch {
		case !errors.Is(err, ErrRetry):
			return err
		case n == maxReruns:
			return agl.Errorf(agl.CodeUnavailable, "%d times another process was in the way: %w", n+1, err)
		}
		pause(n)
	}
}

func (im *importer) tryCommit(ctx context.Context, want *LoadParams, fill func(*Loaded, *Changes) error) error {
	tx, err := im.driver.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Discard()
	want.Now = agl.TimestampOf(time.Now())
	var got Loaded
	if err := tx.Load(ctx, want, &got); err != nil {
		return err
	}
	changes := Changes{Now: want.Now}
	if err := fill(&got, &changes); err != nil {
		return err
	}
	mark := IdempotencyRecord{Scope: im.scope(), Fingerprint: im.header.ExportID, CreateTime: want.Now}
	if changes.QueueClosed.Valid {
		mark.ResourcesID = importDone
	}
	changes.Keys = append(changes.Keys, mark)
	return tx.Apply(ctx, &changes)
}

// end checks that everything was read, queues what is to be queued, and sets
// what there is one of.
func (im *importer) end(ctx context.Context, trailer *exportLine) error {
	var counts Counts
	if err := trailer.decode(&counts); err != nil {
		return err
	}
	switch {
	case counts != im.counts.records():
		return trailer.damaged("it counts %s, but there were %s", counts.appendJSON(nil), im.counts.appendJSON(nil))
	case im.state == nil:
		return trailer.damaged("there is no state before it")
	}
	if _, err := im.lines.next(); !errors.Is(err, io.EOF) {
		return agl.Errorf(agl.CodeInvalid, "line %d of the export is damaged: there must be nothing behind the trailer", trailer.number+1)
	}
	if err := im.flush(ctx); err != nil {
		return err
	}
	slices.SortStableFunc(im.waiting, func(a, b queuedRollout) int { return cmp.Compare(a.place, b.place) })
	for part := range slices.Chunk(im.waiting, importRecords) {
		if err := im.enqueue(ctx, part); err != nil {
			return err
		}
	}
	if err := im.verify(ctx); err != nil {
		return err
	}
	want := &LoadParams{}
	if im.state.LatestResources.Valid {
		want.Resources = []string{im.state.LatestResources.V}
	}
	err := im.commit(ctx, want, func(got *Loaded, c *Changes) error {
		if len(want.Resources) > 0 && len(got.Resources) == 0 {
			return trailer.damaged("the latest resources are %s, which the export does not hold", want.Resources[0])
		}
		c.Resources = append(c.Resources, got.Resources...) // written last, they are the latest
		c.QueueClosed = agl.Some(im.state.QueueClosed)
		return nil
	})
	im.counts.Bytes = im.lines.read
	if err == nil {
		im.progress(im.counts)
	}
	return err
}

// enqueue queues rollouts behind those that are queued.
func (im *importer) enqueue(ctx context.Context, part []queuedRollout) error {
	want := &LoadParams{}
	for i := range part {
		want.Rollouts = append(want.Rollouts, part[i].id)
	}
	return im.commit(ctx, want, func(got *Loaded, c *Changes) error {
		there := make(map[string]*agl.Rollout, len(got.Rollouts))
		for _, r := range got.Rollouts {
			there[r.Rollout.RolloutID] = r.Rollout
		}
		for i := range part {
			r := there[part[i].id]
			switch {
			case r != nil && parked(r):
				queued := *r
				queued.Status, queued.EndTime = part[i].status, part[i].end
				c.Rollouts = append(c.Rollouts, RolloutChange{Rollout: &queued})
			case r == nil || r.Status != part[i].status:
				return agl.Errorf(agl.CodeConflict, "rollout %s was changed while it was imported: no server may use the database meanwhile", part[i].id)
			}
		}
		return nil
	})
}

// verify makes sure that the database has kept everything: one that is in memory
// may have had to make room.
func (im *importer) verify(ctx context.Context) error {
	stats, err := im.driver.Statistics(ctx)
	if err != nil {
		return err
	}
	got := Counts{
		Resources: stats.TotalResources, Workers: stats.TotalWorkers, Rollouts: stats.TotalRollouts,
		Attempts: stats.TotalAttempts, Spans: stats.TotalSpans,
	}
	want := im.counts
	if got.Resources < want.Resources || got.Workers < want.Workers || got.Rollouts < want.Rollouts ||
		got.Attempts < want.Attempts || got.Spans < want.Spans {
		return agl.Errorf(agl.CodeExhausted, "the database has not kept everything: %s of %s", got.appendJSON(nil), want.appendJSON(nil))
	}
	return nil
}
