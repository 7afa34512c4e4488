package capture

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/proxy/record"
)

var errClosed = errors.New("the proxy was closed before the record was stored")

// maxKeptBuffer is the largest buffer that is reused for another batch.
const maxKeptBuffer = 8 << 20

// longestRecord is how long the record of a call may be. Stores take requests of 64 MiB by default.
const longestRecord = 63 << 20

// batch holds calls that are stored together, and the buffer of their spans.
type batch struct {
	calls []*entry
	buf   []byte
}

// writer builds the records of calls that have ended and stores them, or moves them
// to disk while the store is unavailable.
type writer struct {
	ledger    *ledger
	backlog   *backlog
	store     *store
	spool     *callSpool // nil without Config.SpoolDir
	log       *slog.Logger
	longest   int                               // longestRecord, but in tests
	cancelled func(rolloutID, attemptID string) // see Config.Cancelled
	unknown   func(rolloutID, attemptID string) // see Config.Unknown
	losses    atomic.Int64
	gaps      sync.Map // of the backends about which warnGaps has warned
}

// write builds and stores batches until the backlog closes. While it builds a batch, a second
// goroutine stores the previous one.
func (w *writer) write(ctx context.Context) {
	built, free := make(chan batch), make(chan []byte, 2)
	free <- nil
	free <- nil
	var storing sync.WaitGroup
	storing.Go(func() {
		for b := range built {
			w.storeOrSpool(ctx, b.calls)
			w.backlog.done()
			if cap(b.buf) > maxKeptBuffer {
				b.buf = nil
			}
			free <- b.buf[:0]
		}
	})
	var builder record.Builder
	for {
		calls, ok := w.backlog.next(ctx)
		if !ok {
			break
		}
		b := batch{calls[:0], <-free}
		for _, e := range calls {
			if e.refused != nil && (w.spool == nil || final(e.refused)) {
				w.lose(e, e.refused)
				continue
			}
			b.buf = w.build(&builder, b.buf, e)
			b.calls = append(b.calls, e)
		}
		built <- b
	}
	close(built)
	storing.Wait()
}

// build appends the spans of a call to dst.
func (w *writer) build(b *record.Builder, dst []byte, e *entry) []byte {
	at := record.Position{SequenceID: e.recordedID, Name: strconv.FormatInt(e.recordedID, 10), IDs: newSpanIDs()}
	if e.recordedID == 0 { // it has none yet
		at.Name = strconv.FormatUint(e.mark.uid, 36)
	}
	at.Previous, at.Seen = w.ledger.position(e)
	from := len(dst)
	dst, made := b.Append(dst, e.input, &at)
	for _, cut := range [...]func(in *record.Input){withoutReply, withoutRequest} {
		if len(dst)-from <= w.longest {
			break
		}
		e.input.Fail(record.SourceGateway, fmt.Sprintf("the record of the call is longer than the %d bytes that a store takes", w.longest))
		cut(e.input)
		dst, made = b.Append(dst[:from], e.input, &at)
	}
	w.warnGaps(e.input, &made)
	w.ledger.remember(e, &made)
	e.spans = made.Spans
	e.freeInput()
	return dst
}

// warnGaps logs once for each backend that it leaves token ids out of its replies. Streamed chat completions with gaps are requested
// whole from then on, which is logged.
func (w *writer) warnGaps(in *record.Input, made *record.Made) {
	if made.Counted == 0 || in.Streamed != nil && in.Form == record.Chat {
		return
	}
	if _, again := w.gaps.LoadOrStore(in.Backend, true); !again {
		w.log.Warn(fmt.Sprintf("the backend counts %d tokens in a reply and gives the ids of %d: the call cannot be trained on", made.Counted, made.Given),
			"model", in.Model, "backend", in.Backend)
	}
}

func withoutReply(in *record.Input) { in.Reply, in.Streamed, in.Cut = nil, nil, true }

func withoutRequest(in *record.Input) { in.Request, in.BackendRequest, in.Checked = nil, nil, nil }

func newSpanIDs() (ids record.SpanIDs) {
	var random [16 + 8*record.SpansPerCall]byte
	// crypto/rand.Read never fails; it ends the program instead.
	_, _ = rand.Read(random[:])
	text := hex.EncodeToString(random[:])
	ids.Trace = text[:32]
	for i := range ids.Spans {
		ids.Spans[i] = text[32+16*i : 48+16*i]
	}
	return ids
}

// storeOrSpool stores the records of a batch or moves them to disk. It blocks while
// neither is possible: memory fills up, and new calls are refused.
func (w *writer) storeOrSpool(ctx context.Context, batch []*entry) {
	if w.spool == nil {
		w.send(ctx, batch, w.store.persist)
		return
	}
	for delay := firstDelay; ; delay = min(2*delay, lastDelay) {
		if batch = w.spool.put(w.sendDirect(ctx, batch, delay > firstDelay)); len(batch) == 0 {
			return
		}
		if backoff.Sleep(ctx, delay) != nil {
			for _, e := range batch {
				w.lose(e, errClosed)
			}
			return
		}
	}
}

// sendDirect stores the calls that need not go through the spool: they have their sequence
// ids, and no earlier record of their attempts is on disk. It returns the others. Only if must
// is set, as the spool takes nothing, is an unavailable store tried, and are records numbered
// whose ids have arrived after they were built: nothing else would store them.
func (w *writer) sendDirect(ctx context.Context, batch []*entry, must bool) (left []*entry) {
	if w.store.away() && !must {
		return batch
	}
	var direct []*entry
	for _, e := range batch {
		if must && e.recordedID == 0 && background.Closed(e.sequenced) {
			if err := number(e); final(err) {
				w.lose(e, err)
				continue
			}
		}
		if e.recordedID > 0 && !w.spool.waits(e) {
			direct = append(direct, e)
		} else {
			left = append(left, e)
		}
	}
	return append(w.send(ctx, direct, w.store.try), left...)
}

// number puts the sequence id of a call into its record, which was built without. The error is
// that of the store if there is no id.
func number(e *entry) error {
	if e.sequenceState != sequenceGiven {
		return e.refused
	}
	for i, document := range e.spans {
		numbered, err := withSequence(document, e.sequenceID)
		if err != nil {
			return agl.Errorf(agl.CodeInvalid, "number a record: %w", err)
		}
		e.spans[i] = numbered
	}
	e.recordedID = e.sequenceID
	return nil
}

// send stores the records of calls. When the store refuses a batch for good, each
// record is sent separately, so that only bad ones are lost. If the store is
// unavailable, send returns the calls when there is a spool; otherwise they are lost.
func (w *writer) send(ctx context.Context, batch []*entry, request requester) (left []*entry) {
	if len(batch) == 0 {
		return nil
	}
	spans := make([]jsontext.Value, 0, len(batch)*record.SpansPerCall)
	for _, e := range batch {
		spans = append(spans, e.spans...)
	}
	cancelled, err := w.store.add(ctx, request, spans)
	switch {
	case err == nil:
		w.reportCancelled(batch, cancelled)
	case !final(err) && w.spool != nil:
		return batch
	case len(batch) > 1 && final(err):
		for i := range batch {
			left = append(left, w.send(ctx, batch[i:i+1:i+1], request)...)
		}
		return left
	}
	for _, e := range batch {
		e.spans = nil
		if err == nil {
			w.done(e, nil)
		} else {
			w.lose(e, err)
		}
	}
	return nil
}

func (w *writer) reportCancelled(batch []*entry, attemptIDs []string) {
	for _, id := range attemptIDs {
		for _, e := range batch {
			if e.attempt.id == id {
				w.cancelled(e.attempt.rollout.id, id)
				break
			}
		}
	}
}

func (w *writer) lose(e *entry, err error) {
	w.losses.Add(1)
	model := "" // unknown for a spooled call
	if e.input != nil {
		model = e.input.Model
	}
	w.log.Error("call record lost", "rollout", e.attempt.rollout.id, "attempt", e.attempt.id, "model", model, "error", err)
	if w.unknown != nil && errors.Is(err, agl.ErrNotFound) {
		w.unknown(e.attempt.rollout.id, e.attempt.id)
	}
	w.done(e, err)
}

// done releases what a call holds, once its record is stored, or lost with an error.
func (w *writer) done(e *entry, lost error) {
	e.freeInput()
	e.memory.Release()
	if lost == nil {
		w.spool.unmark(e)
	}
	w.ledger.done(e, lost)
}
