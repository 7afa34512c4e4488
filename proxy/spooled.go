package proxy

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/spool"
	"github.com/go-json-experiment/json/jsontext"
)

// spooledCharge is the memory that a call takes whose record is on disk.
const spooledCharge = 1 << 10

// errDied is why calls are lost that a process left behind.
var errDied = agl.Errorf(agl.CodeInternal, "the proxy ended before the call was recorded")

// spoolEntry is what the spool has of a call. On disk it is a byte for the
// version, the call's name, start (Unix nanoseconds) and sequence id (0 is none
// so far), each in 8 bytes, the ids of rollout and attempt, each after its length
// as a uvarint, and the spans as JSON.
type spoolEntry struct {
	uid                  uint64
	start                int64
	sequence             int64
	rolloutID, attemptID string
	spans                []byte // a JSON list
}

const entryVersion = 1

func (e *spoolEntry) append(dst []byte) []byte {
	dst = append(dst, entryVersion)
	dst = binary.LittleEndian.AppendUint64(dst, e.uid)
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.start))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(e.sequence))
	dst = appendID(appendID(dst, e.rolloutID), e.attemptID)
	return append(dst, e.spans...)
}

func appendID(dst []byte, id string) []byte {
	return append(binary.AppendUvarint(dst, uint64(len(id))), id...)
}

func cutID(raw []byte) (id string, rest []byte, ok bool) {
	n, size := binary.Uvarint(raw)
	if size <= 0 || n > uint64(len(raw)-size) {
		return "", nil, false
	}
	return string(raw[size : size+int(n)]), raw[size+int(n):], true
}

// parseEntry reads an entry. Its spans share raw's memory.
func parseEntry(raw []byte) (e spoolEntry, err error) {
	const fixed = 1 + 3*8
	if len(raw) < fixed || raw[0] != entryVersion {
		return e, errors.New("the record has a version that is not known")
	}
	e.uid = binary.LittleEndian.Uint64(raw[1:])
	e.start = int64(binary.LittleEndian.Uint64(raw[9:]))
	e.sequence = int64(binary.LittleEndian.Uint64(raw[17:]))
	var ok bool
	rest := raw[fixed:]
	if e.rolloutID, rest, ok = cutID(rest); ok {
		e.attemptID, rest, ok = cutID(rest)
	}
	if !ok {
		return e, errors.New("the record ends within its ids")
	}
	e.spans = rest
	return e, nil
}

// entry is the spool's entry of a call whose spans are built.
func entry(c *call) spoolEntry {
	spans := []byte{'['}
	for i := range c.spans {
		if i > 0 {
			spans = append(spans, ',')
		}
		spans = append(spans, c.spans[i]...)
	}
	return spoolEntry{c.uid, c.start.UnixNano(), c.sequence, c.attempt.rollout.id, c.attempt.id, append(spans, ']')}
}

// decode returns the entry's spans under a sequence id.
func (e *spoolEntry) decode(sequence int64) ([]jsontext.Value, error) {
	var spans []jsontext.Value
	d := jsontext.NewDecoder(strings.NewReader(string(e.spans)))
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	for d.PeekKind() == '{' {
		raw, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		var s agl.Span
		if err := rawjson.Unmarshal(raw, &s); err != nil {
			return nil, err
		}
		if s.SequenceID != sequence {
			s.SequenceID = sequence
			s.Resource.Attributes, err = s.Resource.Attributes.With(agl.Attr{Key: agl.AttrSpanSequenceID, Value: sequence})
			if err != nil {
				return nil, err
			}
		}
		spans = append(spans, s.AppendJSON(nil))
	}
	_, err := d.ReadToken()
	return spans, err
}

// openSpool opens the spool and takes in what an earlier process left there.
func (r *recorder) openSpool() error {
	var seed [8]byte
	// crypto/rand.Read never fails; it ends the program instead.
	_, _ = rand.Read(seed[:])
	r.uids.Store(binary.LittleEndian.Uint64(seed[:]))
	kept := make(map[uint64]struct{})
	var found []*call
	log, err := spool.Open(r.cfg.SpoolDir, r.cfg.SpoolBytes, func(ref spool.Ref, raw []byte) error {
		e, err := parseEntry(raw)
		if err != nil {
			return err
		}
		kept[e.uid] = struct{}{}
		c := &call{
			route: route{rolloutID: e.rolloutID, attemptID: e.attemptID}, uid: e.uid, start: time.Unix(0, e.start),
			number: e.sequence, ref: ref, ended: true, queued: true, charge: spooledCharge,
		}
		if e.sequence > 0 {
			c.numbered = numberGiven
		}
		found = append(found, c)
		return nil
	})
	if err != nil {
		return agl.Errorf(agl.CodeInvalid, "SpoolDir: %w", err)
	}
	r.spool = log
	if n := log.Damaged(); n > 0 {
		r.log.Error("a part of the spool could not be read", "bytes", n)
	}
	r.spooled = slices.Clone(found)
	// Sequence ids follow the starts, replays the ends.
	slices.SortStableFunc(found, func(a, b *call) int { return cmp.Compare(a.start.UnixNano(), b.start.UnixNano()) })
	for _, c := range found {
		r.ledger.begin(c, c.numbered == unnumbered)
		c.attempt.spooled++
		r.budget.grow(c.charge)
	}
	died := 0
	var stale []int64
	r.marks, err = spool.OpenMarks(r.cfg.SpoolDir, func(slot int64, mark []byte) {
		e, ok := parseMark(mark)
		if _, spooled := kept[e.uid]; ok && !spooled {
			r.ledger.lose(e.rolloutID, e.attemptID, errDied, slot)
			died++
			return
		}
		stale = append(stale, slot)
	})
	if err != nil {
		return errors.Join(agl.Errorf(agl.CodeInvalid, "SpoolDir: %w", err), log.Close())
	}
	for _, slot := range stale {
		if err := r.marks.Clear(slot); err != nil {
			return errors.Join(err, r.closeSpool())
		}
	}
	r.losses.Store(int64(died))
	if len(found)+died > 0 {
		r.log.Warn("an earlier process left calls behind", "spooled", len(found), "lost", died)
	}
	return nil
}

// mark notes on disk that a call is under way, so that it is not lost without a
// trace if the process is. A disk that fails makes that impossible and nothing
// else.
func (r *recorder) mark(c *call) {
	if r.marks == nil {
		return
	}
	c.uid = r.uids.Add(1)
	raw := binary.LittleEndian.AppendUint64(make([]byte, 0, 128), c.uid)
	raw = appendID(appendID(raw, c.rolloutID), c.attemptID)
	if len(raw) > spool.MaxMark {
		raw = appendID(appendID(raw[:8], ""), "")
	}
	slot, err := r.marks.Set(raw)
	if err != nil {
		r.log.Error("a call could not be marked as running", "rollout", c.rolloutID, "attempt", c.attemptID, "error", err)
		return
	}
	c.slot, c.marked = slot, true
}

func parseMark(raw []byte) (e spoolEntry, ok bool) {
	if len(raw) < 8 {
		return e, false
	}
	e.uid = binary.LittleEndian.Uint64(raw)
	rest := raw[8:]
	if e.rolloutID, rest, ok = cutID(rest); ok {
		e.attemptID, _, ok = cutID(rest)
	}
	return e, ok
}

// unmark takes the mark of a call away once its record is kept.
func (r *recorder) unmark(c *call) {
	if !c.marked {
		return
	}
	c.marked = false
	if err := r.marks.Clear(c.slot); err != nil {
		r.log.Error("a mark could not be cleared", "error", err)
	}
}

// putAside moves the records of calls to the spool and returns those, the last
// ones, for which there is no room.
func (r *recorder) putAside(batch []*call) (left []*call) {
	if len(batch) == 0 {
		return nil
	}
	records := make([][]byte, len(batch))
	for i, c := range batch {
		e := entry(c)
		records[i] = e.append(nil)
	}
	refs, err := r.spool.Append(records)
	for err != nil && len(records) > 1 {
		records = records[:len(records)/2]
		refs, err = r.spool.Append(records)
	}
	if err != nil {
		r.log.Warn("a call record could not be spooled, holding it in memory", "error", err)
		return batch
	}
	for i, ref := range refs {
		c := batch[i]
		c.ref, c.spans, c.request, c.asked, c.assembled = ref, nil, nil, nil, nil
		r.unmark(c)
		r.budget.grow(spooledCharge - c.charge)
		c.charge = spooledCharge
	}
	r.mu.Lock()
	for _, c := range batch[:len(refs)] {
		c.attempt.spooled++
	}
	r.spooled = append(r.spooled, batch[:len(refs)]...)
	r.mu.Unlock()
	wakeUp(r.wakeDisk)
	return batch[len(refs):]
}

// replay stores the records of the spool in their order, until close.
func (r *recorder) replay(ctx context.Context) {
	for {
		batch, ok := r.nextSpooled(ctx)
		if !ok {
			return
		}
		left := r.replayBatch(ctx, batch)
		r.mu.Lock()
		r.spooled = append(left, r.spooled[len(batch):]...)
		for _, c := range batch {
			c.attempt.spooled--
		}
		for _, c := range left {
			c.attempt.spooled++
		}
		r.mu.Unlock()
		if len(left) > 0 {
			return
		}
	}
}

// nextSpooled waits for records on disk that have their sequence ids and returns
// the first ones. It returns false when there is nothing more to do.
func (r *recorder) nextSpooled(ctx context.Context) (batch []*call, ok bool) {
	for {
		r.mu.Lock()
		front := r.spooled[:min(len(r.spooled), batchCalls)]
		drained := r.drained
		r.mu.Unlock()
		if len(front) == 0 {
			if drained {
				return nil, false
			}
			select {
			case <-r.wakeDisk:
			case <-ctx.Done():
				return nil, false
			}
			continue
		}
		select {
		case <-front[0].sequenced:
		case <-ctx.Done():
			return nil, false
		}
		bytes := 0
		for _, c := range front {
			if bytes += c.ref.Len(); len(batch) > 0 && bytes > batchBytes || !isClosed(c.sequenced) {
				break
			}
			batch = append(batch, c)
		}
		return batch, true
	}
}

// spooledCalls is how many calls have their records on disk.
func (r *recorder) spooledCalls() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.spooled)
}

func isClosed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}

// replayBatch stores records of the spool. It returns those that the store did
// not take before the recorder closed; they stay on disk.
func (r *recorder) replayBatch(ctx context.Context, batch []*call) (left []*call) {
	var ready []*call
	for _, c := range batch {
		err := c.failed
		switch {
		case c.numbered == numberGiven:
			c.sequence = c.number
			c.spans, err = r.load(c)
		case !final(err):
			left = append(left, c)
			continue
		}
		if err != nil {
			r.spool.Done(c.ref)
			r.lose(c, err)
			continue
		}
		ready = append(ready, c)
	}
	unanswered := r.store(ctx, ready, r.persist)
	for _, c := range unanswered {
		c.spans = nil
	}
	for _, c := range ready {
		if !slices.Contains(unanswered, c) {
			r.spool.Done(c.ref)
		}
	}
	return append(left, unanswered...)
}

func (r *recorder) load(c *call) ([]jsontext.Value, error) {
	raw, err := r.spool.Read(c.ref)
	if err != nil {
		return nil, err
	}
	e, err := parseEntry(raw)
	if err != nil {
		return nil, err
	}
	spans, err := e.decode(c.sequence)
	if err != nil {
		return nil, fmt.Errorf("a record of the spool cannot be read: %w", err)
	}
	return spans, nil
}

// closeSpool ends the use of the directory.
func (r *recorder) closeSpool() error {
	if r.spool == nil {
		return nil
	}
	if n := len(r.spooled); n > 0 {
		r.log.Warn("the store did not take all call records; they stay in the spool until the proxy runs again", "calls", n)
	}
	return errors.Join(r.marks.Close(), r.spool.Close())
}
