package capture

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/background"
	"github.com/agl-go/agl/internal/spanjson"
)

// Spans is the store to which calls are recorded. Every agl.Store is one.
type Spans interface {
	// Capabilities says whether the store has AddSpansJSON and ReserveSequenceIDsOf.
	Capabilities() agl.Capabilities
	// AddSpans and AddSpansJSON must copy what they keep: the memory of the spans is
	// reused when they return.
	AddSpans(ctx context.Context, p agl.AddSpansParams) (agl.AddSpansResult, error)
	AddSpansJSON(ctx context.Context, p agl.AddSpansJSONParams) (agl.AddSpansResult, error)
	ReserveSequenceIDs(ctx context.Context, p agl.ReserveSequenceIDsParams) (first int64, err error)
	ReserveSequenceIDsOf(ctx context.Context, p []agl.ReserveSequenceIDsParams) (first []int64, err error)
}

// The delay before a failed request to the store is repeated doubles from firstDelay to lastDelay. One that was refused for
// its token is repeated after refusedDelay: a store refuses everybody at an address that sends too many wrong tokens.
const (
	firstDelay   = 20 * time.Millisecond
	lastDelay    = 2 * time.Second
	refusedDelay = 10 * time.Second
)

// store sends requests to Spans and tracks whether it is available.
type store struct {
	spans    Spans
	can      agl.Capabilities
	timeout  time.Duration // of a request
	retry    time.Duration // how long failing requests are repeated without a spool
	hasSpool bool          // records can go to disk
	closing  <-chan struct{}
	log      *slog.Logger
	changed  func() // called when the store becomes unavailable or available

	mu   sync.Mutex
	gone chan struct{} // closed while the store is unavailable: the last request failed and may be repeated
}

// requester sends a request to the store: [store.try] or [store.persist].
type requester func(ctx context.Context, request func(ctx context.Context) error) error

// try sends a request once.
func (s *store) try(ctx context.Context, request func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	err := request(ctx)
	away := err != nil && !final(err)
	if !s.set(away) {
		return err
	}
	if away {
		s.log.Warn("the store is unavailable for call records", "error", err)
	} else {
		s.log.Info("the store is available for call records again")
	}
	s.changed()
	return err
}

// set notes whether the store is unavailable, and reports whether that is new.
func (s *store) set(away bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if away == background.Closed(s.gone) {
		return false
	}
	if away {
		close(s.gone)
	} else {
		s.gone = make(chan struct{})
	}
	return true
}

// unavailable returns a channel that is closed once the store is unavailable.
func (s *store) unavailable() <-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.gone
}

func (s *store) away() bool { return background.Closed(s.unavailable()) }

// persist repeats a request until it succeeds or its error is final. It gives up after
// Config.StoreRetry, or, with a spool, when the recorder closes.
func (s *store) persist(ctx context.Context, request func(ctx context.Context) error) error {
	began := time.Now()
	for next := firstDelay; ; next = min(2*next, lastDelay) {
		err := s.try(ctx, request)
		delay := next
		if agl.ErrorCode(err) == agl.CodeUnauthorized {
			delay = refusedDelay
		}
		switch {
		case err == nil || final(err) || ctx.Err() != nil,
			s.hasSpool && background.Closed(s.closing),
			!s.hasSpool && time.Since(began)+delay > s.retry:
			return err
		}
		if s.sleep(ctx, delay) != nil {
			return err
		}
	}
}

// sleep waits for d; with a spool, at most until the recorder closes.
func (s *store) sleep(ctx context.Context, d time.Duration) error {
	var closing <-chan struct{}
	if s.hasSpool {
		closing = s.closing
	}
	select {
	case <-time.After(d):
	case <-closing:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return nil
}

// final reports whether repeating a request cannot help.
func final(err error) bool {
	e, ok := errors.AsType[*agl.Error](err)
	if !ok {
		return false
	}
	switch e.Code {
	case agl.CodeUnavailable, agl.CodeInternal, agl.CodeExhausted,
		agl.CodeUnauthorized: // the token of the store has changed, and may be set right
		return false
	default:
		return true
	}
}

// reserve returns the first sequence id of each attempt.
func (s *store) reserve(ctx context.Context, attempts []agl.ReserveSequenceIDsParams) (first []int64, err error) {
	err = s.persist(ctx, func(ctx context.Context) (err error) {
		if len(attempts) > 1 {
			first, err = s.spans.ReserveSequenceIDsOf(ctx, attempts)
			return err
		}
		first = make([]int64, 1)
		first[0], err = s.spans.ReserveSequenceIDs(ctx, attempts[0])
		return err
	})
	return first, err
}

// add adds spans and returns which of their attempts were cancelled.
func (s *store) add(ctx context.Context, request requester, docs []jsontext.Value) (cancelled []string, err error) {
	err = request(ctx, func(ctx context.Context) error {
		result, err := s.addOnce(ctx, docs)
		cancelled = result.Cancelled
		return err
	})
	return cancelled, err
}

func (s *store) addOnce(ctx context.Context, docs []jsontext.Value) (agl.AddSpansResult, error) {
	if s.can.AddSpansJSON {
		return s.spans.AddSpansJSON(ctx, agl.AddSpansJSONParams{Spans: docs})
	}
	spans := make([]agl.Span, len(docs))
	for i, doc := range docs {
		if err := spanjson.Parse(doc, &spans[i]); err != nil {
			return agl.AddSpansResult{}, agl.Errorf(agl.CodeInternal, "a record cannot be read: %w", err)
		}
	}
	return s.spans.AddSpans(ctx, agl.AddSpansParams{Spans: spans})
}
