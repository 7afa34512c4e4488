package archive

import (
	"bytes"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/store/driver"
)

// batch holds the records of one commit.
type batch struct {
	records, bytes int

	rollouts  []importedRollout
	attempts  []imported[*agl.Attempt]
	workers   []imported[*agl.Worker]
	resources []imported[*agl.ResourcesUpdate]
	spans     []driver.SpanRecord
	sequences []driver.Sequence
	documents []imported[*agl.Document]
	keys      []driver.IdempotencyRecord
}

type imported[T any] struct {
	value T
	line  int
}

type importedRollout struct {
	imported[*agl.Rollout]

	evicted bool
	queued  agl.RolloutStatus // its real status when it is held back; "" otherwise
}

// read adds the value of a line to a list.
func read[T any](l *line, list *[]imported[*T]) error {
	v := imported[*T]{new(T), l.number}
	*list = append(*list, v)
	return l.decode(v.value)
}

// want names every record of the batch, to find out which exist already.
func (b *batch) want() *driver.LoadParams {
	want := &driver.LoadParams{}
	for _, r := range b.rollouts {
		want.Rollouts = append(want.Rollouts, r.value.RolloutID)
	}
	for _, a := range b.attempts {
		want.Attempts = append(want.Attempts, driver.AttemptKey{RolloutID: a.value.RolloutID, AttemptID: a.value.AttemptID})
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
	for _, d := range b.documents {
		want.Documents = append(want.Documents, driver.DocumentKey{Kind: d.value.Kind, ID: d.value.ID})
	}
	for _, k := range b.keys {
		want.Keys = append(want.Keys, k.Scope)
	}
	return want
}

// changes adds the records that do not exist yet. Those that exist must be the same.
func (b *batch) changes(got *driver.Loaded, c *driver.Changes) error {
	if err := b.rolloutChanges(got, c); err != nil {
		return err
	}
	workers := make([]*agl.Worker, 0, len(got.Workers))
	for _, w := range got.Workers {
		if w.Worker != nil {
			workers = append(workers, w.Worker)
		}
	}
	attempts, err := absent("attempt", b.attempts, got.Attempts, func(a *agl.Attempt) string { return a.RolloutID + "/" + a.AttemptID })
	if err != nil {
		return err
	}
	for _, a := range attempts {
		c.Attempts = append(c.Attempts, driver.AttemptChange{Attempt: a, New: true})
	}
	if c.Workers, err = absent("worker", b.workers, workers, func(w *agl.Worker) string { return w.WorkerID }); err != nil {
		return err
	}
	c.Resources, err = absent("resources", b.resources, got.Resources, func(u *agl.ResourcesUpdate) string { return u.ResourcesID })
	if err != nil {
		return err
	}
	spans := make(map[driver.SpanKey]struct{}, len(got.Spans))
	for _, key := range got.Spans {
		spans[key] = struct{}{}
	}
	for i := range b.spans {
		if _, found := spans[b.spans[i].SpanKey]; !found {
			spans[b.spans[i].SpanKey] = struct{}{}
			c.Spans = append(c.Spans, b.spans[i])
		}
	}
	c.Documents, err = absent("document", b.documents, got.Documents, func(d *agl.Document) string { return d.Kind + "/" + d.ID })
	if err != nil {
		return err
	}
	c.Sequences = append(c.Sequences, b.sequences...)
	for i := range b.keys {
		if !slices.ContainsFunc(got.Keys, func(k driver.IdempotencyRecord) bool { return k.Scope == b.keys[i].Scope }) {
			c.Keys = append(c.Keys, b.keys[i])
		}
	}
	return nil
}

func (b *batch) rolloutChanges(got *driver.Loaded, c *driver.Changes) error {
	rollouts := make(map[string]*agl.Rollout, len(got.Rollouts))
	for _, r := range got.Rollouts {
		rollouts[r.Rollout.RolloutID] = r.Rollout
	}
	for _, r := range b.rollouts {
		existing := rollouts[r.value.RolloutID]
		if existing == nil {
			rollouts[r.value.RolloutID] = r.value
			c.Rollouts = append(c.Rollouts, driver.RolloutChange{Rollout: r.value, New: true})
			if r.evicted {
				c.EvictedRollouts = append(c.EvictedRollouts, r.value.RolloutID)
			}
			continue
		}
		if r.queued != "" && existing.Status == r.queued {
			existing = hold(*existing) // it was released before the interruption
		}
		if !sameJSON(existing, r.value) {
			return errDiffers(r.line, "rollout", r.value.RolloutID)
		}
	}
	return nil
}

// absent returns the records that the database does not hold, each once. One that
// it holds must be the same.
func absent[T rawjson.Appender](kind string, records []imported[T], existing []T, id func(T) string) ([]T, error) {
	found := make(map[string]T, len(existing))
	for _, v := range existing {
		found[id(v)] = v
	}
	var out []T
	for _, r := range records {
		key := id(r.value)
		if other, exists := found[key]; !exists {
			found[key] = r.value
			out = append(out, r.value)
		} else if !sameJSON(other, r.value) {
			return nil, errDiffers(r.line, kind, key)
		}
	}
	return out, nil
}

func sameJSON[T rawjson.Appender](a, b T) bool {
	return bytes.Equal(a.AppendJSON(nil), b.AppendJSON(nil))
}

func errDiffers(line int, what, id string) error {
	return agl.Errorf(agl.CodeConflict, "line %d: %s %s in the database differs from the one in the export", line, what, id)
}
