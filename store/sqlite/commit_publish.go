package sqlite

// publish puts the committed rows into memory.
func (t *tx) publish() {
	d := t.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range t.order {
		t.publishRollout(w)
	}
	for _, w := range t.workers {
		d.workers.put(w.cur.WorkerID, w, w.size())
	}
	for _, u := range t.bundles {
		d.resources.put(u.cur.ResourcesID, u, u.size())
	}
	for _, id := range t.c.DeletedWorkers {
		d.workers.remove(id)
	}
	for _, stream := range t.garbage {
		d.spans.remove(stream)
	}
	for _, id := range t.c.DeletedResources {
		d.resources.remove(id)
	}
	d.state = t.state
	d.oldest = t.oldest
}

func (t *tx) publishRollout(w *rolloutWork) {
	d := t.d
	before := w.was.worker()
	if w.deleted {
		d.rollouts.remove(w.id)
		delete(d.ahead, w.id)
		d.count(before, -1)
		return
	}
	switch {
	case w.dirty:
		delete(d.ahead, w.id)
	case w.last != d.lastSequence(w.was):
		d.ahead[w.id] = w.last.V
	}
	r := &rolloutRow{}
	*r = w.row
	if w.was != nil {
		r.older = w.was.older
	}
	for _, a := range w.attempts {
		a.publish(r, a == w.latest)
		d.keepSpans(a)
	}
	if w.latest == nil {
		r.latest = nil
	}
	if after := r.worker(); after != before {
		d.count(before, -1)
		d.count(after, 1)
	}
	d.rollouts.put(w.id, r, r.size())
}

// publish puts the attempt into the row of its rollout.
func (a *attemptWork) publish(r *rolloutRow, latest bool) {
	id := a.row.cur.AttemptID
	if a.deleted {
		delete(r.older, id)
		return
	}
	row := a.was
	if a.dirty || row == nil {
		row = &attemptRow{}
		*row = a.row
		for _, s := range a.added {
			if row.ids != nil {
				row.ids[s.SpanID] = struct{}{}
			}
		}
		if len(row.ids) > maxIDs {
			row.ids = nil
		}
	}
	if latest {
		r.latest = row
		delete(r.older, id)
		return
	}
	if r.older == nil {
		r.older = map[string]*attemptRow{}
	}
	r.older[id] = row
}

// count adds to the number of a worker's live attempts.
func (d *Driver) count(worker string, n int) {
	if worker == "" {
		return
	}
	if d.live[worker] += n; d.live[worker] == 0 {
		delete(d.live, worker)
	}
}
