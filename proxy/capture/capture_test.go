package capture

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// memoryStore is a store that counts spans.
type memoryStore struct {
	agl.UnimplementedStore

	slow   time.Duration // to give sequence ids
	refuse func(s *agl.Span) error

	mu     sync.Mutex
	traces []any // the value of traceKey in the context of each request
	stored int
}

type traceKey struct{}

func (s *memoryStore) ReserveSequenceIDs(ctx context.Context, _ agl.ReserveSequenceIDsParams) (int64, error) {
	s.trace(ctx)
	time.Sleep(s.slow)
	return 1, nil
}

func (s *memoryStore) trace(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.traces = append(s.traces, ctx.Value(traceKey{}))
}

func (s *memoryStore) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	s.trace(ctx)
	if s.refuse != nil {
		for i := range p.Spans {
			if err := s.refuse(&p.Spans[i]); err != nil {
				return agl.AddSpansResult{}, err
			}
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored += len(p.Spans)
	return agl.AddSpansResult{}, nil
}

func started(t *testing.T, store Spans) *Recorder {
	t.Helper()
	r, err := New(Config{
		Spans: store, Mode: Require, MemoryBytes: 1 << 20, QueueTimeout: time.Minute, StoreTimeout: time.Second, StoreRetry: time.Minute,
		WriteDelay: time.Millisecond, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.Start(context.WithValue(t.Context(), traceKey{}, "start"))
	return r
}

// call records one call with token ids.
func call(ctx context.Context, t *testing.T, r *Recorder, rolloutID, attemptID string, ids int) {
	t.Helper()
	memory, err := r.Reserve(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	c := r.Begin(rolloutID, attemptID)
	list := strings.Repeat("1,", ids) + "1"
	reply := fmt.Appendf(nil, `{"id":"%s","choices":[{"message":{},"token_ids":[1]}],"prompt_token_ids":[%s]}`, attemptID, list)
	now := time.Now()
	c.End(&record.Input{RolloutID: rolloutID, AttemptID: attemptID, Status: http.StatusOK, Reply: reply, Start: now, End: now}, memory, nil)
}

func closed(t *testing.T, r *Recorder) {
	t.Helper()
	if err := r.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// A record whose sequence id comes while the recorder closes is written.
func TestCloseWaitsForIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{slow: time.Second}
		r := started(t, store)
		call(t.Context(), t, r, "r", "a", 1)
		closed(t, r)
		if store.stored != record.SpansPerCall {
			t.Errorf("%d spans stored, want the %d of the call", store.stored, record.SpansPerCall)
		}
	})
}

// Records that were built while the store was away are stored when it is back, also where the spool takes nothing, such as on a full
// disk.
func TestStoreIsBackAndSpoolBroken(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		store := &memoryStore{refuse: func(s *agl.Span) error {
			if s.SequenceID == 0 {
				return agl.Errorf(agl.CodeInvalid, "a span without a sequence id")
			}
			return nil
		}}
		r, err := New(Config{
			Spans: awayStore{store, &away}, Mode: Require, MemoryBytes: 1 << 20, QueueTimeout: time.Minute, StoreTimeout: time.Second, StoreRetry: time.Minute,
			WriteDelay: time.Millisecond, SpoolDir: t.TempDir(), SpoolBytes: 1, Logger: slog.New(slog.DiscardHandler),
		})
		if err != nil {
			t.Fatal(err)
		}
		r.Start(t.Context())
		away.Store(true)
		for range 10 {
			call(t.Context(), t, r, "r", "a", 1)
			time.Sleep(time.Second)
		}
		away.Store(false)
		time.Sleep(time.Minute)
		if got := r.Stats(); store.stored != 10*record.SpansPerCall || got != (Stats{}) {
			t.Errorf("a minute after the store is back %d spans are stored and %+v, want the %d of ten calls", store.stored, got, 10*record.SpansPerCall)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := r.Close(ctx); err != nil {
			t.Error(err)
		}
	})
}

// TestLossesAtCloseOutliveIt: what neither the store nor the spool had taken when a proxy was closed is missed by the next
// process as well, at the flush of its attempt, once.
func TestLossesAtCloseOutliveIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var away atomic.Bool
		dir := t.TempDir()
		open := func() *Recorder {
			r, err := New(Config{
				Spans: awayStore{&memoryStore{}, &away}, Mode: Require, MemoryBytes: 1 << 20, QueueTimeout: time.Minute, StoreTimeout: time.Second, StoreRetry: time.Minute,
				WriteDelay: time.Millisecond, SpoolDir: dir, SpoolBytes: 1, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			r.Start(t.Context())
			return r
		}
		r := open()
		away.Store(true)
		call(t.Context(), t, r, "r", "a", 1)
		call(t.Context(), t, r, "never flushed", "a", 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.Close(ctx); err == nil || !strings.Contains(err.Error(), "2 call records could not be stored") {
			t.Errorf("close: %v, want the loss", err)
		}
		away.Store(false)
		attempt := Scope{RolloutIDs: []string{"r"}, AttemptID: "a"}
		r = open()
		if err := r.Flush(t.Context(), attempt); err == nil || !strings.Contains(err.Error(), "1 call records could not be stored") {
			t.Errorf("the flush of the next process: %v, want the loss", err)
		}
		_ = r.Close(t.Context()) // tells of both
		r = open()
		if err := errors.Join(r.Flush(t.Context(), attempt), r.Close(t.Context())); err != nil {
			t.Errorf("the losses outlive another process: %v", err)
		}
	})
}

// awayStore is unavailable while it is away.
type awayStore struct {
	*memoryStore

	away *atomic.Bool
}

func (s awayStore) ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (int64, error) {
	if s.away.Load() {
		return 0, agl.Errorf(agl.CodeUnavailable, "the store is away")
	}
	return s.memoryStore.ReserveSequenceIDs(ctx, p)
}

func (s awayStore) AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error) {
	if s.away.Load() {
		return agl.AddSpansResult{}, agl.Errorf(agl.CodeUnavailable, "the store is away")
	}
	return s.memoryStore.AddSpans(ctx, p)
}

// Requests to the store carry the values of the context that Start was called
// with, not those of a call.
func TestStoreRequestsBelongToStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := &memoryStore{}
		r := started(t, store)
		call(context.WithValue(t.Context(), traceKey{}, "first call"), t, r, "r", "a", 1)
		closed(t, r)
		if len(store.traces) != 2 || store.traces[0] != "start" || store.traces[1] != "start" {
			t.Errorf("requests of %v, want two of start", store.traces)
		}
	})
}

// Losses are remembered however many token ids there are to compare with.
func TestLossesOutliveCaches(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		gone := agl.Errorf(agl.CodeNotFound, "no such attempt")
		store := &memoryStore{refuse: func(s *agl.Span) error {
			if s.RolloutID == "lossy" {
				return gone
			}
			return nil
		}}
		r := started(t, store)
		call(t.Context(), t, r, "lossy", "a", 1)
		r.ledger.mu.Lock()
		r.ledger.caches.limit = 1 << 20
		r.ledger.mu.Unlock()
		const ids = 32 << 10
		for i := range 16 {
			call(t.Context(), t, r, fmt.Sprint("r", i), "a", ids)
		}
		if err := r.Flush(t.Context(), Scope{RolloutIDs: []string{"lossy"}}); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("flush of the rollout whose record was lost: %v", err)
		}
		synctest.Wait()
		r.ledger.mu.Lock()
		if r.ledger.caches.bytes > r.ledger.caches.limit {
			t.Errorf("the caches hold %d bytes, at most %d", r.ledger.caches.bytes, r.ledger.caches.limit)
		}
		r.ledger.mu.Unlock()
		if err := r.Close(t.Context()); !errors.Is(err, agl.ErrNotFound) {
			t.Errorf("close: %v", err)
		}
	})
}

// Nothing stays of an attempt that has ended: one that was flushed, or was followed
// by another.
func TestEndedAttemptsAreForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := started(t, &memoryStore{})
		for i := range 100 {
			rollout := fmt.Sprint("r", i)
			call(t.Context(), t, r, rollout, "first", 100)
			call(t.Context(), t, r, rollout, "second", 100)
			synctest.Wait()
			time.Sleep(time.Second)
			r.ledger.mu.Lock()
			stays := r.ledger.rollouts[rollout].attempts[0].cache != nil && r.ledger.rollouts[rollout].attempts[0].id == "first"
			r.ledger.mu.Unlock()
			if stays {
				t.Fatal("the cache of an attempt stays when the next one has begun")
			}
			if err := r.Flush(t.Context(), Scope{RolloutIDs: []string{rollout}, AttemptID: "second"}); err != nil {
				t.Fatal(err)
			}
		}
		closed(t, r)
		if n := len(r.ledger.rollouts); n != 0 {
			t.Errorf("%d rollouts are known after the end of all attempts", n)
		}
		if b := r.ledger.caches.bytes; b != 0 {
			t.Errorf("their caches hold %d bytes", b)
		}
	})
}

// What is remembered of attempts is bounded by bytes, not by their number: one
// that makes very many calls takes no more than all together may.
func TestLongAttemptIsBounded(t *testing.T) {
	t.Parallel()
	l := newLedger()
	l.caches.limit = 1 << 20
	for i := range 200_000 {
		e := &entry{sequenceState: sequenceGiven}
		l.begin("r", "a", e)
		l.remember(e, &record.Made{ResponseID: fmt.Sprint("response-", i)})
		if l.caches.bytes > l.caches.limit {
			t.Fatalf("%d bytes after %d calls", l.caches.bytes, i)
		}
		if c := e.attempt.cache; c != nil && len(c.seen)*seenBytes > l.caches.limit {
			t.Fatalf("%d response ids are kept after %d calls", len(c.seen), i)
		}
		l.done(e, nil)
	}
}

// Attempts with losses are remembered, the newest of them first.
func TestLossesAreBounded(t *testing.T) {
	t.Parallel()
	l := newLedger()
	for i := range maxLossy + 10 {
		l.lose(fmt.Sprint("r", i), "a", errClosed, mark{})
	}
	if n := len(l.rollouts); n != maxLossy {
		t.Errorf("%d rollouts are known, want %d", n, maxLossy)
	}
	if _, err := l.lost(Scope{RolloutIDs: []string{fmt.Sprint("r", maxLossy+9)}}); err == nil {
		t.Error("the newest loss is forgotten")
	}
}

// A call whose record is longer than a store takes is recorded without its reply or, if that does not suffice, without its request, and says so.
func TestLongRecordIsCut(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		request, reply  int
		asked, answered bool // what is recorded
	}{
		"short": {request: 100, reply: 100, asked: true, answered: true},
		"reply": {request: 100, reply: 9000, asked: true},
		"both":  {request: 9000, reply: 9000},
	} {
		store := &memoryStore{}
		var recorded []agl.Span
		store.refuse = func(s *agl.Span) error {
			recorded = append(recorded, *s)
			return nil
		}
		r := started(t, store)
		r.writer.longest = 8 << 10
		memory, err := r.Reserve(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		asked, answered := strings.Repeat("q", tc.request), strings.Repeat("a", tc.reply)
		r.Begin("ro-1", "at-1").End(&record.Input{
			RolloutID: "ro-1", AttemptID: "at-1", Status: 200, Delivered: true, Start: time.Now(), End: time.Now(),
			Request: []byte(`{"model":"m","messages":[{"role":"user","content":"` + asked + `"}]}`),
			Reply:   []byte(`{"id":"c","choices":[{"index":0,"message":{"role":"assistant","content":"` + answered + `"},"finish_reason":"stop"}]}`),
		}, memory, nil)
		closed(t, r)
		if len(recorded) != record.SpansPerCall {
			t.Fatalf("%s: %d spans", name, len(recorded))
		}
		call := &recorded[1]
		_, hasRequest := call.Attributes.GetString(agl.AttrGenAIPrompt + ".0.content")
		_, hasReply := call.Attributes.GetString(agl.AttrGenAICompletion + ".0.content")
		_, cut := call.Attributes.Get(record.AttrReplyCut)
		if hasRequest != tc.asked || hasReply != tc.answered || cut == tc.answered || strings.Contains(call.Status.Description.V, "8192 bytes") == tc.answered {
			t.Errorf("%s: request %v, reply %v, cut %v, %q", name, hasRequest, hasReply, cut, call.Status.Description.V)
		}
	}
}
