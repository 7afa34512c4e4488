package sqlite

// publish takes what has been committed into memory.
func (t *tx) publish() {
	d := t.d
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, w := range t.order {
		t.publishRollout(w)
	}
	for _, w := range t.workers {
		d.workers.put(w.cur.WorkerID, w, rowBytes)
	}
	for _, u := range t.bundles {
		d.resources.put(u.cur.ResourcesID, u, rowBytes+u.size)
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
	e := &rolloutEntry{row: &rolloutRow{}}
	*e.row = w.row
	if w.entry != nil {
		e.older = w.entry.older
	}
	for _, a := range w.attempts {
		a.publish(e, a == w.latest)
	}
	if w.latest == nil {
		e.row.latest = nil
	}
	if after := e.row.worker(); after != before {
		d.count(before, -1)
		d.count(after, 1)
	}
	d.rollouts.put(w.id, e, e.size())
}

// publish puts what became of an attempt into its rollout's entry.
func (a *attemptWork) publish(e *rolloutEntry, latest bool) {
	id := a.row.cur.AttemptID
	if a.deleted {
		delete(e.older, id)
		return
	}
	row := a.was
	if a.dirty || row == nil {
		row = &attemptRow{}
		*row = a.row
		for _, id := range a.newIDs {
			if row.ids != nil {
				row.ids[id] = struct{}{}
			}
		}
		if len(row.ids) > maxIDs {
			row.ids = nil
		}
	}
	if latest {
		e.row.latest = row
		delete(e.older, id)
		return
	}
	if e.older == nil {
		e.older = map[string]*attemptRow{}
	}
	e.older[id] = row
}

// count adds to a worker's live attempts.
func (d *Driver) count(worker string, n int) {
	if worker == "" {
		return
	}
	if d.live[worker] += n; d.live[worker] == 0 {
		delete(d.live, worker)
	}
}
