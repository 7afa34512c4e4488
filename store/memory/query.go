package memory

import (
	"cmp"
	"context"
	"iter"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// directed returns compare for a sort order. Ties keep their order, so a descending page is not an ascending one
// reversed.
func directed[E any](compare func(a, b E) int, order agl.SortOrder) func(a, b E) int {
	if compare == nil || order != agl.Descending {
		return compare
	}
	return func(a, b E) int { return compare(b, a) }
}

// find returns a page of the elements that match (nil matches all), in the order of
// compare (nil keeps the order of all). Without match and compare its cost depends only
// on the size of the page.
func find[E, T any](all []E, p agl.Paging, match func(E) bool, compare func(a, b E) int, value func(E) T) agl.Page[T] {
	if match != nil {
		matching := make([]E, 0, min(len(all), 64))
		for _, e := range all {
			if match(e) {
				matching = append(matching, e)
			}
		}
		all = matching
	}
	if compare != nil {
		if match == nil {
			all = slices.Clone(all)
		}
		slices.SortStableFunc(all, compare)
	}
	page := agl.Page[T]{Limit: p.Limit, Offset: p.Offset, Total: len(all)}
	from := min(p.Offset, len(all))
	to := len(all)
	if p.Limit >= 0 {
		to = min(to, from+p.Limit)
	}
	page.Items = make([]T, to-from)
	for i, e := range all[from:to] {
		page.Items[i] = value(e)
	}
	return page
}

// filters are the conditions of a query.
type filters[E any] struct {
	all []func(E) bool
	or  bool
}

func (f *filters[E]) add(given bool, condition func(E) bool) {
	if given {
		f.all = append(f.all, condition)
	}
}

// match returns the joined conditions, nil when there are none.
func (f *filters[E]) match() func(E) bool {
	switch {
	case len(f.all) == 0:
		return nil
	case len(f.all) == 1:
		return f.all[0]
	}
	return func(e E) bool {
		for _, condition := range f.all {
			if condition(e) == f.or {
				return f.or
			}
		}
		return !f.or
	}
}

// Rollouts implements driver.Driver.
func (d *Driver) Rollouts(_ context.Context, ids []string) ([]agl.AttemptedRollout, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out := make([]agl.AttemptedRollout, 0, len(ids))
	for _, id := range ids {
		if r := d.rollouts[id]; r != nil {
			out = append(out, r.attempted())
		}
	}
	return out, nil
}

// Live implements driver.Driver.
func (d *Driver) Live(context.Context) ([]agl.AttemptedRollout, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var out []agl.AttemptedRollout
	for _, r := range d.ordered {
		watched := r.cur.Status == agl.RolloutPreparing || r.cur.Status == agl.RolloutRunning
		if watched && r.latest() != nil {
			out = append(out, r.attempted())
		}
	}
	return out, nil
}

// QueryRollouts implements driver.Driver.
func (d *Driver) QueryRollouts(_ context.Context, p agl.QueryRolloutsParams) (agl.Page[agl.AttemptedRollout], error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	all := d.ordered
	f := filters[*rollout]{or: p.Logic == agl.FilterOr}
	if p.RolloutIDIn != nil {
		if f.or {
			wanted := make(map[string]bool, len(p.RolloutIDIn))
			for _, id := range p.RolloutIDIn {
				wanted[id] = true
			}
			f.add(true, func(r *rollout) bool { return wanted[r.cur.RolloutID] })
		} else {
			all = d.named(p.RolloutIDIn)
		}
	}
	f.add(p.StatusIn != nil, func(r *rollout) bool { return slices.Contains(p.StatusIn, r.cur.Status) })
	f.add(p.RolloutIDContains != "", func(r *rollout) bool { return strings.Contains(r.cur.RolloutID, p.RolloutIDContains) })
	f.add(p.ModeIn != nil, func(r *rollout) bool { return slices.Contains(p.ModeIn, r.cur.Mode) })
	for _, label := range p.Labels {
		f.add(true, labelled(label))
	}
	f.add(p.RewardMin.Valid, func(r *rollout) bool { reward := r.reward(); return reward.Valid && reward.V.Value >= p.RewardMin.V })
	f.add(p.RewardMax.Valid, func(r *rollout) bool { reward := r.reward(); return reward.Valid && reward.V.Value <= p.RewardMax.V })
	compare := directed(rolloutOrder(p.SortBy), p.Order)
	if p.SortBy == "reward" {
		compare = rewardOrder(p.Order)
	}
	match, total := f.match(), -1
	switch {
	case match == nil:
		total = len(all)
	case len(f.all) == 1 && p.StatusIn != nil && p.RolloutIDIn == nil:
		total = d.countOf(p.StatusIn)
	}
	if p.After != "" {
		match, total = behind(d.rollouts[p.After], compare, match), -1
	}
	switch inOrder := p.SortBy == "start_time" && !d.unsorted; {
	case inOrder && p.Order == agl.Descending:
		return pick(newestFirst(all), p.Paging, match, total), nil
	case inOrder || compare == nil:
		return pick(slices.Values(all), p.Paging, match, total), nil
	}
	return find(all, p.Paging, match, compare, (*rollout).attempted), nil
}

// Queue implements driver.Driver.
func (d *Driver) Queue(_ context.Context, limit int, heard agl.Timestamp) (out driver.QueueCounts, _ error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	out.Queued = min(limit, d.countOf([]agl.RolloutStatus{agl.RolloutQueuing, agl.RolloutRequeuing}))
	for i := 0; !out.Since.Valid; i++ {
		p := d.queue.at(i)
		if p == nil {
			break
		}
		if !p.valid() {
			continue
		}
		out.Since = agl.Some(p.entry.cur.StartTime)
		if a := p.entry.latest(); a != nil && a.cur.EndTime.Valid {
			out.Since = a.cur.EndTime
		}
	}
	for _, w := range d.workerList {
		switch {
		case driver.LastContact(w.cur) < heard:
		case w.cur.Status == agl.WorkerIdle:
			out.Idle++
		case w.cur.Status == agl.WorkerBusy:
			out.Busy++
		}
	}
	return out, nil
}

func (d *Driver) countOf(statuses []agl.RolloutStatus) int {
	n := 0
	for i, status := range statuses {
		if !slices.Contains(statuses[:i], status) {
			n += d.statuses[status]
		}
	}
	return n
}

// labelled returns the condition that a rollout has a label.
func labelled(label agl.Label) func(*rollout) bool {
	wanted := agl.Some(label.Value)
	switch label.Name {
	case "run":
		return func(r *rollout) bool { return r.labels.Run == wanted }
	case "step":
		return func(r *rollout) bool { return r.labels.Step == wanted }
	}
	line := driver.LabelLine(label)
	return func(r *rollout) bool { return strings.Contains(r.labels.Text, line) }
}

// newestFirst yields rollouts, which are ordered by their start, from the last one on. Those that started at the same
// time keep their order.
func newestFirst(all []*rollout) iter.Seq[*rollout] {
	return func(yield func(*rollout) bool) {
		for end := len(all); end > 0; {
			from := end - 1
			for from > 0 && all[from-1].cur.StartTime == all[end-1].cur.StartTime {
				from--
			}
			for _, r := range all[from:end] {
				if !yield(r) {
					return
				}
			}
			end = from
		}
	}
}

// pick returns a page of the rollouts that match (nil matches all), in the given order. total is the number of
// matches or -1; if it is known, pick reads no more than the page needs.
func pick(all iter.Seq[*rollout], p agl.Paging, match func(*rollout) bool, total int) agl.Page[agl.AttemptedRollout] {
	page := agl.Page[agl.AttemptedRollout]{Limit: p.Limit, Offset: p.Offset, Items: []agl.AttemptedRollout{}}
	full := func() bool { return p.Limit >= 0 && len(page.Items) >= p.Limit }
	for r := range all {
		if total >= 0 && (full() || page.Total == total) {
			break
		}
		if match != nil && !match(r) {
			continue
		}
		if page.Total++; page.Total > p.Offset && !full() {
			page.Items = append(page.Items, r.attempted())
		}
	}
	page.Total = max(page.Total, total)
	return page
}

// behind returns the condition that a rollout matches and comes after other, which is nil if it does not exist.
func behind(other *rollout, compare func(a, b *rollout) int, match func(*rollout) bool) func(*rollout) bool {
	return func(r *rollout) bool {
		if other == nil || match != nil && !match(r) {
			return false
		}
		order := 0
		if compare != nil {
			order = compare(r, other)
		}
		return cmp.Or(order, cmp.Compare(r.ordinal, other.ordinal)) > 0
	}
}

// reward returns the reward of the latest attempt.
func (r *rollout) reward() agl.Null[agl.AttemptReward] {
	if a := r.latest(); a != nil {
		return a.cur.Reward
	}
	return agl.Null[agl.AttemptReward]{}
}

// rewardOrder puts rollouts without a reward last in both directions.
func rewardOrder(order agl.SortOrder) func(a, b *rollout) int {
	byValue := directed(func(a, b *rollout) int { return cmp.Compare(a.reward().V.Value, b.reward().V.Value) }, order)
	return func(a, b *rollout) int {
		has, other := a.reward().Valid, b.reward().Valid
		switch {
		case has && other:
			return byValue(a, b)
		case has:
			return -1
		case other:
			return 1
		}
		return 0
	}
}

// named returns the rollouts with these ids, in the order of creation.
func (d *Driver) named(ids []string) []*rollout {
	var out []*rollout
	for _, id := range ids {
		if r := d.rollouts[id]; r != nil {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *rollout) int { return cmp.Compare(a.ordinal, b.ordinal) })
	return slices.Compact(out)
}

func rolloutOrder(field string) func(a, b *rollout) int {
	return map[string]func(a, b *rollout) int{
		"rollout_id":   func(a, b *rollout) int { return cmp.Compare(a.cur.RolloutID, b.cur.RolloutID) },
		"start_time":   func(a, b *rollout) int { return cmp.Compare(a.cur.StartTime, b.cur.StartTime) },
		"end_time":     func(a, b *rollout) int { return compareTimes(a.cur.EndTime, b.cur.EndTime) },
		"mode":         func(a, b *rollout) int { return cmp.Compare(a.cur.Mode, b.cur.Mode) },
		"resources_id": func(a, b *rollout) int { return cmp.Compare(a.cur.ResourcesID.V, b.cur.ResourcesID.V) },
		"status":       func(a, b *rollout) int { return cmp.Compare(a.cur.Status, b.cur.Status) },
	}[field]
}

// QueryAttempts implements driver.Driver.
func (d *Driver) QueryAttempts(_ context.Context, p agl.QueryAttemptsParams) (agl.Page[agl.Attempt], error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var all []*attempt
	if r := d.rollouts[p.RolloutID]; r != nil {
		all = r.attempts
	}
	if p.SortBy == "" {
		p.SortBy = "sequence_id"
	}
	return find(all, p.Paging, nil, directed(attemptOrder(p.SortBy), p.Order), func(a *attempt) agl.Attempt { return *a.cur }), nil
}

func attemptOrder(field string) func(a, b *attempt) int {
	return map[string]func(a, b *attempt) int{
		"attempt_id":          func(a, b *attempt) int { return cmp.Compare(a.cur.AttemptID, b.cur.AttemptID) },
		"sequence_id":         func(a, b *attempt) int { return cmp.Compare(a.cur.SequenceID, b.cur.SequenceID) },
		"start_time":          func(a, b *attempt) int { return cmp.Compare(a.cur.StartTime, b.cur.StartTime) },
		"end_time":            func(a, b *attempt) int { return compareTimes(a.cur.EndTime, b.cur.EndTime) },
		"status":              func(a, b *attempt) int { return cmp.Compare(a.cur.Status, b.cur.Status) },
		"worker_id":           func(a, b *attempt) int { return cmp.Compare(a.cur.WorkerID.V, b.cur.WorkerID.V) },
		"last_heartbeat_time": func(a, b *attempt) int { return compareTimes(a.cur.LastHeartbeatTime, b.cur.LastHeartbeatTime) },
	}[field] // nil for rollout_id, which is the same for all
}

// Resources implements driver.Driver.
func (d *Driver) Resources(_ context.Context, id string) (agl.ResourcesUpdate, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if u := d.resources[id]; u != nil {
		return *u.cur, nil
	}
	return agl.ResourcesUpdate{}, agl.Errorf(agl.CodeNotFound, "Resources %s not found", id)
}

// LatestResources implements driver.Driver.
func (d *Driver) LatestResources(context.Context) (agl.ResourcesUpdate, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if d.latest != nil {
		return *d.latest.cur, nil
	}
	return agl.ResourcesUpdate{}, agl.Errorf(agl.CodeNotFound, "No resources found")
}

// QueryResources implements driver.Driver.
func (d *Driver) QueryResources(_ context.Context, p agl.QueryResourcesParams) (agl.Page[agl.ResourcesUpdate], error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var f filters[*bundle]
	f.add(p.ResourcesID != "", func(u *bundle) bool { return u.cur.ResourcesID == p.ResourcesID })
	f.add(p.ResourcesIDContains != "", func(u *bundle) bool { return strings.Contains(u.cur.ResourcesID, p.ResourcesIDContains) })
	return find(d.bundleList, p.Paging, f.match(), directed(bundleOrder(p.SortBy), p.Order), func(u *bundle) agl.ResourcesUpdate { return *u.cur }), nil
}

func bundleOrder(field string) func(a, b *bundle) int {
	return map[string]func(a, b *bundle) int{
		"resources_id": func(a, b *bundle) int { return cmp.Compare(a.cur.ResourcesID, b.cur.ResourcesID) },
		"create_time":  func(a, b *bundle) int { return cmp.Compare(a.cur.CreateTime, b.cur.CreateTime) },
		"update_time":  func(a, b *bundle) int { return cmp.Compare(a.cur.UpdateTime, b.cur.UpdateTime) },
		"version":      func(a, b *bundle) int { return cmp.Compare(a.cur.Version, b.cur.Version) },
	}[field]
}

// Worker implements driver.Driver.
func (d *Driver) Worker(_ context.Context, id string) (agl.Worker, error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	if w := d.workers[id]; w != nil && w.cur != nil {
		return *w.cur, nil
	}
	return agl.Worker{}, agl.Errorf(agl.CodeNotFound, "Worker %s not found", id)
}

// QueryWorkers implements driver.Driver.
func (d *Driver) QueryWorkers(_ context.Context, p agl.QueryWorkersParams) (agl.Page[agl.Worker], error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	f := filters[*worker]{or: p.Logic == agl.FilterOr}
	f.add(p.StatusIn != nil, func(w *worker) bool { return slices.Contains(p.StatusIn, w.cur.Status) })
	f.add(p.WorkerIDContains != "", func(w *worker) bool { return strings.Contains(w.cur.WorkerID, p.WorkerIDContains) })
	return find(d.workerList, p.Paging, f.match(), directed(workerOrder(p.SortBy), p.Order), func(w *worker) agl.Worker { return *w.cur }), nil
}

func workerOrder(field string) func(a, b *worker) int {
	return map[string]func(a, b *worker) int{
		"worker_id":           func(a, b *worker) int { return cmp.Compare(a.cur.WorkerID, b.cur.WorkerID) },
		"status":              func(a, b *worker) int { return cmp.Compare(a.cur.Status, b.cur.Status) },
		"last_heartbeat_time": func(a, b *worker) int { return compareTimes(a.cur.LastHeartbeatTime, b.cur.LastHeartbeatTime) },
		"last_dequeue_time":   func(a, b *worker) int { return compareTimes(a.cur.LastDequeueTime, b.cur.LastDequeueTime) },
		"last_busy_time":      func(a, b *worker) int { return compareTimes(a.cur.LastBusyTime, b.cur.LastBusyTime) },
		"last_idle_time":      func(a, b *worker) int { return compareTimes(a.cur.LastIdleTime, b.cur.LastIdleTime) },
		"current_rollout_id":  func(a, b *worker) int { return cmp.Compare(a.cur.CurrentRolloutID.V, b.cur.CurrentRolloutID.V) },
		"current_attempt_id":  func(a, b *worker) int { return cmp.Compare(a.cur.CurrentAttemptID.V, b.cur.CurrentAttemptID.V) },
	}[field]
}

// QuerySpans implements driver.Driver.
func (d *Driver) QuerySpans(_ context.Context, p agl.QuerySpansParams) (agl.Page[driver.StoredSpan], error) {
	d.mu.RLock()
	defer d.mu.RUnlock()
	var list spanList
	if r := d.rollouts[p.RolloutID]; r != nil {
		if r.evicted {
			return agl.Page[driver.StoredSpan]{}, agl.Errorf(agl.CodeEvicted, "Spans for rollout %s have been evicted", p.RolloutID)
		}
		list = r.spansOf(p.AttemptID)
	}
	f := filters[*span]{or: p.Logic == agl.FilterOr}
	f.add(p.TraceID != "", func(s *span) bool { return s.TraceID == p.TraceID })
	f.add(p.TraceIDContains != "", func(s *span) bool { return strings.Contains(s.TraceID, p.TraceIDContains) })
	f.add(p.SpanID != "", func(s *span) bool { return s.SpanID == p.SpanID })
	f.add(p.SpanIDContains != "", func(s *span) bool { return strings.Contains(s.SpanID, p.SpanIDContains) })
	f.add(p.ParentID != "", func(s *span) bool { return s.ParentID == p.ParentID })
	f.add(p.ParentIDContains != "", func(s *span) bool { return strings.Contains(s.ParentID, p.ParentIDContains) })
	f.add(p.Name != "", func(s *span) bool { return s.Name == p.Name })
	f.add(p.NameContains != "", func(s *span) bool { return strings.Contains(s.Name, p.NameContains) })
	match := f.match()
	compare := directed(spanOrder(p.SortBy), p.Order)
	if compare != nil && p.SortBy != "sequence_id" {
		byField := compare
		compare = func(a, b *span) int { return cmp.Or(byField(a, b), cmp.Compare(a.ordinal, b.ordinal)) }
	}
	if match == nil && p.SortBy == "sequence_id" && p.Order != agl.Descending && !list.ties {
		compare = nil // the list is in that order already
	}
	return find(list.items, p.Paging, match, compare, (*span).stored), nil
}

// spansOf returns the spans of an attempt, of the latest one, or of all.
func (r *rollout) spansOf(attemptID string) spanList {
	var a *attempt
	switch attemptID {
	case "":
		return r.spans
	case agl.LatestAttempt:
		a = r.latest()
	default:
		a = r.attempt(attemptID)
	}
	if a == nil {
		return spanList{}
	}
	return a.spans
}

// spanOrder compares by a field; nil leaves a spanList as it is.
func spanOrder(field string) func(a, b *span) int {
	return map[string]func(a, b *span) int{
		"sequence_id": func(a, b *span) int { return cmp.Compare(a.SequenceID, b.SequenceID) },
		"trace_id":    func(a, b *span) int { return cmp.Compare(a.TraceID, b.TraceID) },
		"span_id":     func(a, b *span) int { return cmp.Compare(a.SpanID, b.SpanID) },
		"parent_id":   func(a, b *span) int { return cmp.Compare(a.ParentID, b.ParentID) },
		"name":        func(a, b *span) int { return cmp.Compare(a.Name, b.Name) },
		"start_time":  func(a, b *span) int { return compareTimes(a.StartTime, b.StartTime) },
		"end_time":    func(a, b *span) int { return compareTimes(a.EndTime, b.EndTime) },
		"attempt_id":  func(a, b *span) int { return cmp.Compare(a.AttemptID, b.AttemptID) },
		"rollout_id":  func(_, _ *span) int { return 0 },
	}[field]
}
