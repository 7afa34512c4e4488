package collect

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// The documents of a collector.
const (
	kindHead  = "collect-head"
	idHead    = "head"
	kindEntry = "collect-entry" // of the log, and by rollout
	parentLog = "log"
	// Finished rollouts without a reward, by the end of their reward windows: the sequence is that time in
	// milliseconds.
	kindPending   = "collect-pending"
	parentPending = "window"
)

func entryID(rolloutID string) string { return "rollout/" + rolloutID }

func correctionID(number int64) string { return "correction/" + strconv.FormatInt(number, 10) }

// entry is the body of an entry of the log. The fields that a consumer reads never change.
type entry struct {
	RolloutID  string            `json:"rollout_id"`
	Correction bool              `json:"correction,omitzero"`
	Reward     agl.Null[float64] `json:"reward"`
	Rewards    int               `json:"rewards"`
	Previous   agl.Null[float64] `json:"previous,omitzero"` // of a correction

	// In the entry of a rollout: what the last entry about it reported. The keys keep the names under which stores have
	// them: an entry without them would count as one that has reported nothing.
	Reported      agl.Null[float64] `json:"told,omitzero"`
	ReportedCount int               `json:"told_many,omitzero"`
	// Corrections has the numbers of the corrections, to be deleted with the rollout.
	Corrections []int64 `json:"corrections,omitzero"`
}

const (
	eventPage = 512
	chunk     = 200 // rollouts in one query
	// maxCorrections bounds the corrections that are deleted with their rollout, so that one write can do it.
	maxCorrections = agl.MaxDocumentWrites / 2
)

// update brings the log up to date and returns its head.
func (c *Collector) update(ctx context.Context) (head, error) {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return head{}, ctx.Err()
	}
	defer func() { <-c.turn }()
	for {
		h, err := c.load(ctx)
		if err == nil {
			err = c.advance(ctx, &h)
		}
		if !errors.Is(err, errStale) {
			return h, err
		}
	}
}

// errStale means that another collector has written the log meanwhile.
var errStale = errors.New("the head of the log has changed")

// advance handles all events after the head, and all reward windows that are over.
func (c *Collector) advance(ctx context.Context, h *head) error {
	for more := true; more; {
		events, err := c.store.ReadEvents(ctx, h.Event, eventPage)
		if err != nil {
			return err
		}
		more = len(events) == eventPage
		var changed []string
		for i := range events {
			e := &events[i]
			ends := e.Kind == agl.EventRollout && (agl.RolloutStatus(e.Status).Finished() || e.Status == "deleted")
			if (ends || e.Kind == agl.EventSpans) && !slices.Contains(changed, e.RolloutID) {
				changed = append(changed, e.RolloutID)
			}
		}
		if len(events) == 0 {
			break
		}
		before, last, renewed := h.version, events[len(events)-1].ID, false
		if events[len(events)-1].Kind == agl.EventReset {
			if changed, err = c.finished(ctx); err != nil {
				return err
			}
			renewed = h.renew(last)
		}
		if err := c.lookAt(ctx, h, changed, last); err != nil {
			return err
		}
		if h.version == before && (more || renewed || before == 0) { // so that a restart need not read these events again
			if err := c.write(ctx, h, nil); err != nil {
				return err
			}
		}
		c.behind.version, c.behind.event = h.version, h.Event
	}
	for {
		page, err := c.store.QueryDocuments(ctx, agl.QueryDocumentsParams{
			Kind: kindPending, Parent: agl.Some(parentPending), To: agl.Some(time.Now().UnixMilli()), Limit: chunk,
		})
		if err != nil || len(page.Items) == 0 {
			return err
		}
		ids := make([]string, len(page.Items))
		for i := range page.Items {
			ids[i] = page.Items[i].ID
		}
		if err := c.lookAt(ctx, h, ids, h.Event); err != nil {
			return err
		}
	}
}

// finished returns all finished rollouts, the oldest first. Those that finish during the query have events of their own.
func (c *Collector) finished(ctx context.Context) ([]string, error) {
	const page = 1000
	var ids []string
	query := agl.QueryRolloutsParams{
		StatusIn: []agl.RolloutStatus{agl.RolloutSucceeded, agl.RolloutFailed, agl.RolloutCancelled},
		Paging:   agl.Paging{Limit: page, SortBy: "start_time", Order: agl.Ascending},
	}
	for {
		got, err := c.store.QueryRollouts(ctx, query)
		if query.After != "" && errors.Is(err, agl.ErrInvalid) { // the last of the page before was deleted: start over
			ids, query.After = nil, ""
			continue
		}
		if err != nil {
			return nil, err
		}
		for i := range got.Items {
			ids = append(ids, got.Items[i].RolloutID)
		}
		if len(got.Items) < page {
			return ids, nil
		}
		query.After = ids[len(ids)-1]
	}
}

// lookAt writes entries for rollouts that may be ready or have more rewards. Its last write records that the events
// up to event are handled.
func (c *Collector) lookAt(ctx context.Context, h *head, ids []string, event string) error {
	for from := 0; from < len(ids); from += chunk {
		some := ids[from:min(from+chunk, len(ids))]
		rollouts, err := c.rollouts(ctx, some)
		if err != nil {
			return err
		}
		var writes []agl.DocumentWrite
		for _, id := range some {
			var r *agl.AttemptedRollout
			if found, ok := rollouts[id]; ok {
				r = &found
			}
			more, err := c.judge(ctx, h, id, r)
			if err != nil {
				return err
			}
			if len(writes)+len(more) >= agl.MaxDocumentWrites { // the head is written, too
				if err := c.write(ctx, h, writes); err != nil {
					return err
				}
				writes = nil
			}
			writes = append(writes, more...)
		}
		if from+chunk >= len(ids) {
			h.Event = event
		}
		if len(writes) == 0 {
			continue
		}
		if err := c.write(ctx, h, writes); err != nil {
			return err
		}
	}
	h.Event = event
	return nil
}

// write writes documents together with the head, unless another collector has written the head meanwhile. It causes
// no events: waiting readers are woken by the events that made the log grow.
func (c *Collector) write(ctx context.Context, h *head, writes []agl.DocumentWrite) error {
	body, err := json.Marshal(h)
	if err != nil {
		return err
	}
	writes = append(writes, agl.DocumentWrite{Kind: kindHead, ID: idHead, Body: body, IfVersion: agl.Some(h.version)})
	for i := range writes {
		writes[i].Quiet = true
	}
	_, err = c.store.WriteDocuments(ctx, agl.WriteDocumentsParams{Writes: writes})
	if errors.Is(err, agl.ErrConflict) || errors.Is(err, agl.ErrNotFound) {
		return errStale
	}
	if err == nil {
		h.version++
	}
	return err
}

// judge returns the writes for a rollout in its current state; nil if it was deleted.
func (c *Collector) judge(ctx context.Context, h *head, id string, r *agl.AttemptedRollout) ([]agl.DocumentWrite, error) {
	var known *entry
	switch document, err := c.store.GetDocument(ctx, kindEntry, entryID(id)); {
	case err == nil:
		known = new(entry)
		if err := document.Decode(known); err != nil {
			return nil, err
		}
		if r == nil {
			writes := []agl.DocumentWrite{{Kind: kindEntry, ID: entryID(id), Delete: true}}
			for _, number := range known.Corrections {
				writes = append(writes, agl.DocumentWrite{Kind: kindEntry, ID: correctionID(number), Delete: true})
			}
			return writes, nil
		}
		return c.correct(ctx, h, r, known, document.Sequence)
	case !errors.Is(err, agl.ErrNotFound):
		return nil, err
	}

	var writes []agl.DocumentWrite
	waiting := int64(0) // the stored end of its window
	switch document, err := c.store.GetDocument(ctx, kindPending, id); {
	case err == nil:
		waiting = document.Sequence
		writes = append(writes, agl.DocumentWrite{Kind: kindPending, ID: id, Delete: true})
	case !errors.Is(err, agl.ErrNotFound):
		return nil, err
	}
	if r == nil || !r.Status.Finished() { // deleted, or opened again
		return writes, nil
	}
	reward, many, err := c.reward(ctx, r)
	if err != nil {
		return nil, err
	}
	if over := c.windowEnd(r); !reward.Valid && time.Now().Before(over) {
		end := over.UnixMilli() + 1
		if waiting == end {
			return nil, nil
		}
		return []agl.DocumentWrite{{Kind: kindPending, ID: id, Parent: parentPending, Sequence: end, Body: []byte("{}")}}, nil
	}
	h.Last++
	add, err := entryWrite(entryID(id), h.Last, &entry{RolloutID: id, Reward: reward, Rewards: many, Reported: reward, ReportedCount: many})
	return append(writes, add), err
}

// correct returns the writes for a rollout that is in the log: a correction if it has more rewards than the log says.
func (c *Collector) correct(ctx context.Context, h *head, r *agl.AttemptedRollout, known *entry, place int64) ([]agl.DocumentWrite, error) {
	reward, many, err := c.reward(ctx, r)
	if err != nil || many <= known.ReportedCount {
		return nil, err
	}
	h.Last++
	add, err := entryWrite(correctionID(h.Last), h.Last,
		&entry{RolloutID: r.RolloutID, Correction: true, Reward: reward, Previous: known.Reported, Rewards: many - known.ReportedCount})
	if err != nil {
		return nil, err
	}
	known.Reported, known.ReportedCount = reward, many
	if len(known.Corrections) < maxCorrections {
		known.Corrections = append(known.Corrections, h.Last)
	}
	update, err := entryWrite(entryID(r.RolloutID), place, known)
	return []agl.DocumentWrite{add, update}, err
}

func entryWrite(id string, place int64, e *entry) (agl.DocumentWrite, error) {
	body, err := json.Marshal(e)
	return agl.DocumentWrite{Kind: kindEntry, ID: id, Parent: parentLog, Sequence: place, Body: body}, err
}

// windowEnd returns the time at which a finished rollout is ready even without a reward.
func (c *Collector) windowEnd(r *agl.AttemptedRollout) time.Time {
	window := c.window
	if seconds, ok := agl.Attributes(r.Metadata).GetFloat(agl.MetadataRewardWindow); ok {
		const most = 1e9 // seconds, which a Duration can hold
		window = time.Duration(min(max(seconds, 0), most) * float64(time.Second))
	}
	return r.EndTime.V.Time().Add(window)
}

// reward returns the reward of the latest attempt, and the number of spans with a reward. Malformed rewards do not
// count: spans never change.
func (c *Collector) reward(ctx context.Context, r *agl.AttemptedRollout) (reward agl.Null[float64], many int, err error) {
	if r.Attempt == nil {
		return reward, 0, nil
	}
	page, err := c.store.QuerySpans(ctx, agl.QuerySpansParams{
		RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, AttributeNames: adapter.RewardAttributes(), Paging: agl.Paging{Limit: -1},
	})
	if errors.Is(err, agl.ErrEvicted) {
		return reward, 0, nil
	}
	if err != nil {
		return reward, 0, err
	}
	for i := range page.Items {
		one, err := adapter.PrimaryReward(&page.Items[i])
		switch {
		case err != nil:
			c.log.Warn("a reward cannot be read", "rollout_id", r.RolloutID, "span_id", page.Items[i].SpanID, "error", err)
		case one.Valid:
			many++
		}
	}
	if reward, err = adapter.FinalReward(page.Items); err != nil {
		return agl.Null[float64]{}, many, nil //nolint:nilerr // it was logged above
	}
	return reward, many, nil
}

// pending returns when the first reward window ends, and how many finished rollouts wait for a reward.
func (c *Collector) pending(ctx context.Context) (first time.Time, many int, err error) {
	page, err := c.store.QueryDocuments(ctx, agl.QueryDocumentsParams{Kind: kindPending, Parent: agl.Some(parentPending), Limit: 1})
	if err != nil || len(page.Items) == 0 {
		return time.Time{}, 0, err
	}
	return time.UnixMilli(page.Items[0].Sequence), page.Total, nil
}
