package trainer

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/rest"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/backend"
)

// openStore returns the config's store, which its owner closes, or one over its
// database.
func openStore(ctx context.Context, cfg Config) (_ execution.OpenedStore, err error) {
	if cfg.Store != nil {
		return execution.OpenedStore{Store: cfg.Store}, nil
	}
	name, err := backend.Parse(cfg.Database)
	if err != nil {
		return execution.OpenedStore{}, err
	}
	driver, err := backend.Open(ctx, backend.Config{DSN: name, Logger: cfg.Logger})
	if err != nil {
		return execution.OpenedStore{}, err
	}
	closing := context.WithoutCancel(ctx)
	config := store.Config{Driver: driver, DefaultUnresponsive: cfg.Unresponsive, Logger: cfg.Logger}
	var metrics *rest.Metrics
	if !cfg.sharesMemory() { // nobody could read them
		if metrics, err = rest.NewMetrics(prometheus.NewRegistry()); err != nil {
			return execution.OpenedStore{}, errors.Join(err, driver.Close(closing))
		}
		config.Observer = metrics
	}
	s, err := store.New(ctx, config)
	if err != nil {
		return execution.OpenedStore{}, errors.Join(err, driver.Close(closing))
	}
	opened := execution.OpenedStore{Store: s, Close: func() error { return s.Close(closing) }, Metrics: metrics}
	if err := resume(ctx, cfg, s, name.Kind); err != nil {
		return execution.OpenedStore{}, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// resume makes a database that has seen runs before ready for another one.
func resume(ctx context.Context, cfg Config, s agl.Store, kind backend.Kind) error {
	if kind == backend.Memory {
		return nil
	}
	// The last run has closed the queue: runners elsewhere that are still there
	// must not take that for the end of this one.
	if err := s.OpenQueue(ctx); err != nil {
		return fmt.Errorf("open the queue: %w", err)
	}
	// Only of a file can it be told that nobody else works on it.
	if cfg.Algorithm == nil || kind != backend.SQLite {
		return nil
	}
	left, err := cancelUnfinished(ctx, s)
	if err != nil {
		return fmt.Errorf("cancel what an earlier run has left: %w", err)
	}
	if left > 0 {
		cfg.Logger.Info("cancelled the rollouts that an earlier run has left unfinished", "rollouts", left)
	}
	return nil
}

const (
	// cancelPage is how many rollouts are looked at together.
	cancelPage = 1000
	// cancelling is how many are cancelled at once: they share commits.
	cancelling = 64
)

// cancelUnfinished cancels every rollout that is not finished.
func cancelUnfinished(ctx context.Context, s agl.Store) (cancelled int, err error) {
	unfinished := agl.QueryRolloutsParams{
		StatusIn: []agl.RolloutStatus{agl.RolloutQueuing, agl.RolloutRequeuing, agl.RolloutPreparing, agl.RolloutRunning},
		Paging:   agl.Paging{Limit: cancelPage},
	}
	for {
		page, err := s.QueryRollouts(ctx, unfinished)
		if err != nil || len(page.Items) == 0 {
			return cancelled, err
		}
		failed := make([]error, cancelling)
		var wg sync.WaitGroup
		for worker := range cancelling {
			wg.Go(func() {
				for i := worker; i < len(page.Items) && failed[worker] == nil; i += cancelling {
					_, failed[worker] = s.CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: page.Items[i].RolloutID})
				}
			})
		}
		wg.Wait()
		if err := errors.Join(failed...); err != nil {
			return cancelled, err
		}
		cancelled += len(page.Items)
	}
}
