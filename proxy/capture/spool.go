package capture

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/spandelta"
	"github.com/agl-go/agl/proxy/spool"
)

// spooledBytes is the estimated memory of a call whose record is on disk.
const spooledBytes = 1 << 10

// errDied is the cause of losses of an earlier process.
var errDied = agl.Errorf(agl.CodeInternal, "the proxy ended before the call was recorded")

// callSpool keeps records on disk while the store is unavailable, and marks of the calls
// whose records are neither stored nor spooled. A nil callSpool sets no marks.
type callSpool struct {
	records *spool.Log
	marks   *spool.Marks
	uids    atomic.Uint64
	ledger  *ledger
	log     *slog.Logger
	heads   spoolHeads
	reader  spoolReader

	puts, sets failing // failures of put in a row; all of mark, some of which work in between on a full disk

	mu      sync.Mutex
	spooled []*entry // whose records are on disk, the oldest in front
	closed  bool     // no more records will be spooled
	wake    chan struct{}
}

// openSpool opens a directory and adds to the ledger what an earlier process left there: calls
// whose records are on disk, and calls that it lost.
func openSpool(dir string, limit int64, l *ledger, m *memory, log *slog.Logger) (_ *callSpool, lost int, err error) {
	c := &callSpool{ledger: l, log: log, wake: make(chan struct{}, 1)}
	var seed [8]byte
	// crypto/rand.Read never fails; it ends the program instead.
	_, _ = rand.Read(seed[:])
	c.uids.Store(binary.LittleEndian.Uint64(seed[:]))
	type found struct {
		spoolEntry

		ref spool.Ref
	}
	var left []found // in the order of the calls' ends, in which they are replayed
	c.records, err = spool.Open(dir, limit, func(ref spool.Ref, raw []byte) error {
		e, err := parseSpoolEntry(raw)
		e.spans = nil // load reads them again
		left = append(left, found{e, ref})
		return err
	})
	if err != nil {
		return nil, 0, err
	}
	codec := spandelta.NewCodec()
	c.heads.codec, c.reader = codec, spoolReader{codec: codec, records: c.records}
	if n := c.records.Damaged(); n > 0 {
		log.Error("part of the spool is damaged and was skipped", "bytes", n)
	}
	c.spooled = make([]*entry, len(left))
	kept := make(map[uint64]struct{}, len(left))
	byStart := make([]int, len(left)) // calls get sequence ids in the order of their starts
	for i, f := range left {
		kept[f.uid] = struct{}{}
		byStart[i] = i
		e := &entry{start: time.Unix(0, f.start), mark: mark{uid: f.uid}, ref: f.ref, spanBytes: f.size, ended: true, queued: true, memory: m.take(spooledBytes)}
		if f.sequence > 0 {
			e.sequenceState, e.sequenceID = sequenceGiven, f.sequence
		}
		c.spooled[i] = e
	}
	slices.SortStableFunc(byStart, func(a, b int) int { return cmp.Compare(left[a].start, left[b].start) })
	for _, i := range byStart {
		l.begin(left[i].rolloutID, left[i].attemptID, c.spooled[i])
		c.spooled[i].attempt.spooled++
	}
	var stale []mark
	c.marks, err = spool.OpenMarks(dir, func(slot int64, raw []byte) {
		e, ok := parseMark(raw)
		if _, spooled := kept[e.uid]; !ok || spooled {
			stale = append(stale, mark{slot: slot})
			return
		}
		l.lose(e.rolloutID, e.attemptID, errDied, mark{slot: slot, set: true})
		lost++
	})
	if err != nil {
		return nil, 0, errors.Join(err, c.records.Close())
	}
	c.clear(stale...)
	if len(left)+lost > 0 {
		log.Warn("an earlier process left calls behind", "spooled", len(left), "lost", lost)
	}
	return c, lost, nil
}

// mark marks a call as running, so that its loss is noticed if the process dies. If
// the disk fails, the call continues without a mark.
func (c *callSpool) mark(rolloutID, attemptID string) mark {
	if c == nil {
		return mark{}
	}
	e := spoolEntry{uid: c.uids.Add(1), rolloutID: rolloutID, attemptID: attemptID}
	slot, err := c.marks.Set(e.appendMark(make([]byte, 0, 128)))
	if err != nil {
		c.sets.fail(c.log, "calls could not be marked as running, so a crash would not notice their loss", err)
		return mark{uid: e.uid}
	}
	return mark{uid: e.uid, slot: slot, set: true}
}

// unmark removes the mark of a call once its record is stored or spooled.
func (c *callSpool) unmark(e *entry) {
	if e.mark.set {
		e.mark.set = false
		c.clear(e.mark)
	}
}

func (c *callSpool) clear(marks ...mark) {
	for _, m := range marks {
		if err := c.marks.Clear(m.slot); err != nil {
			c.log.Error("a mark could not be cleared", "error", err)
		}
	}
}

// put moves the records of calls to disk, as many as fit, and returns the remaining
// calls. One goroutine calls it.
func (c *callSpool) put(batch []*entry) (left []*entry) {
	if len(batch) == 0 {
		return nil
	}
	refs, err := c.append(batch)
	for n := len(batch); err != nil && n > 1; {
		n /= 2
		refs, err = c.append(batch[:n])
	}
	if err != nil {
		c.puts.fail(c.log, "call records could not be spooled, holding them in memory", err)
		return batch
	}
	if len(refs) == len(batch) && c.puts.work() {
		c.log.Info("call records can be spooled again")
	}
	for i, e := range batch[:len(refs)] {
		e.spanBytes = 0
		for _, document := range e.spans {
			e.spanBytes += len(document)
		}
		e.ref, e.spans, e.input = refs[i], nil, nil
		c.unmark(e)
		e.memory.shrink(spooledBytes)
	}
	c.mu.Lock()
	for _, e := range batch[:len(refs)] {
		e.attempt.spooled++
	}
	c.spooled = append(c.spooled, batch[:len(refs)]...)
	c.mu.Unlock()
	background.Wake(c.wake)
	return batch[len(refs):]
}

// failingLogEvery is how often it is logged that the disk takes nothing.
const failingLogEvery = 30 * time.Second

// failing counts the failures of something that is tried again every few seconds, or for each call.
type failing struct {
	mu     sync.Mutex
	logged time.Time // zero while it works
	n      int       // since work was called
}

// fail counts a failure, and logs it unless one was logged a short while ago.
func (f *failing) fail(log *slog.Logger, message string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.n++
	now := time.Now()
	if since := now.Sub(f.logged); since >= 0 && since < failingLogEvery {
		return
	}
	f.logged = now
	log.Warn(message, "attempts", f.n, "error", err)
}

// work ends a row of failures, and reports whether there was one.
func (f *failing) work() (failed bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed = f.n > 0
	f.n, f.logged = 0, time.Time{}
	return failed
}

// append writes the records of calls to disk.
func (c *callSpool) append(batch []*entry) ([]spool.Ref, error) {
	for again := false; ; again = true {
		at, err := c.records.Next()
		if err != nil {
			return nil, err
		}
		records, keep := c.heads.encode(at, batch)
		refs, err := c.records.AppendAt(at, records)
		switch {
		case err == nil:
			keep()
		case errors.Is(err, spool.ErrMoved) && !again: // the last record of the segment was delivered meanwhile
			continue
		default:
			c.heads.forget()
		}
		return refs, err
	}
}

// waits reports whether a call must wait for earlier records of its attempt on disk.
func (c *callSpool) waits(e *entry) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return e.attempt.spooled > 0
}

// count returns the number of records on disk.
func (c *callSpool) count() int {
	if c == nil {
		return 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.spooled)
}

// next waits until the oldest record has its sequence id, and returns the batch that
// begins with it. ok is false when ctx ends, or when the spool is empty after finish.
func (c *callSpool) next(ctx context.Context) (batch []*entry, ok bool) {
	for {
		c.mu.Lock()
		front := c.spooled[:min(len(c.spooled), batchCalls)]
		closed := c.closed
		c.mu.Unlock()
		if len(front) == 0 {
			if closed {
				return nil, false
			}
			select {
			case <-c.wake:
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
		for _, e := range front {
			if bytes += e.spanBytes; len(batch) > 0 && bytes > batchBytes || !background.Closed(e.sequenced) {
				break
			}
			batch = append(batch, e)
		}
		return batch, true
	}
}

// took removes a batch that next has returned, except the calls in left.
func (c *callSpool) took(batch, left []*entry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.spooled = append(left, c.spooled[len(batch):]...)
	for _, e := range batch {
		e.attempt.spooled--
	}
	for _, e := range left {
		e.attempt.spooled++
	}
}

// load reads the spans of a record, with the sequence id that the call has now.
func (c *callSpool) load(e *entry) ([]jsontext.Value, error) {
	raw, err := c.records.Read(e.ref)
	if err != nil {
		return nil, err
	}
	s, err := parseSpoolEntry(raw)
	if err != nil {
		return nil, err
	}
	documents, err := c.reader.documents(e.ref, &s)
	if err != nil {
		return nil, fmt.Errorf("read a spooled record: %w", err)
	}
	spans := make([]jsontext.Value, len(documents))
	for i, document := range documents {
		if spans[i], err = withSequence(document, e.recordedID); err != nil {
			return nil, fmt.Errorf("read a spooled record: %w", err)
		}
	}
	return spans, nil
}

// finish makes next return ok false once the spool is empty.
func (c *callSpool) finish() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	background.Wake(c.wake)
}

// close closes the files and releases the directory.
func (c *callSpool) close() error {
	if n := c.count(); n > 0 {
		c.log.Warn("the store did not take all call records; they stay in the spool until the proxy runs again", "calls", n)
	}
	return errors.Join(c.marks.Close(), c.records.Close())
}
