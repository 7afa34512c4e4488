package store

import (
	"context"
	"errors"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/driver"
)

// New starts a Store over config.Driver. ctx bounds only the start; its values are passed on to background work. The
// caller closes the store.
func New(ctx context.Context, config Config) (*Store, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	config = config.withDefaults()
	s := &Store{
		committer:  newCommitter(&config),
		notesClock: config.notesClock,
		closing:    make(chan struct{}),
		closed:     make(chan struct{}),
	}
	s.inFlight.init()
	s.keyLocks.init()
	s.buffers.New = func() any { return new([]byte) }
	if err := checkImported(ctx, config.Driver); err != nil {
		return nil, err
	}
	live, err := s.driver.Live(ctx)
	if err != nil {
		return nil, err
	}
	if err := s.resumeClock(ctx, live); err != nil {
		return nil, err
	}
	s.started = time.Now()
	s.deadlines.outageEnded(0, agl.TimestampOf(s.clock.Now()))
	for i := range live {
		s.deadlines.set(&live[i].Rollout, live[i].Attempt)
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	s.stop = stop
	s.background.Go(func() { s.watch(background) })
	if rules := config.Retention.rules(); len(rules) > 0 {
		s.background.Go(func() { s.retain(background, rules) })
	}
	return s, nil
}

// checkImported rejects a database that holds only a part of an export.
func checkImported(ctx context.Context, d driver.Driver) error {
	unfinished, err := d.Document(ctx, driver.UnfinishedImport())
	switch {
	case errors.Is(err, agl.ErrNotFound):
		return nil
	case err != nil:
		return err
	}
	return agl.Errorf(agl.CodeIllegalState,
		"the database holds a part of an export: its import was interrupted (%s); run agl db import with that export again, or use another database", unfinished.Body)
}
