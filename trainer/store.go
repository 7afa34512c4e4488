package trainer

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/errgroup"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/dashboard"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
)

// openStore returns the config's store, which its owner closes, or one over its database.
func openStore(ctx context.Context, cfg Config) (_ execution.OpenedStore, err error) {
	if cfg.Store != nil {
		return execution.OpenedStore{Store: cfg.Store}, nil
	}
	name, err := store.ParseDSN(cfg.Database)
	if err != nil {
		return execution.OpenedStore{}, err
	}
	options := store.Options{Config: store.Config{DefaultUnresponsive: cfg.Unresponsive, Logger: cfg.Logger}}
	var metrics *server.Metrics
	var page http.Handler
	if !cfg.Strategy.Placement().Private { // a private store has no route that serves metrics
		if metrics, err = server.NewMetrics(prometheus.NewRegistry()); err != nil {
			return execution.OpenedStore{}, err
		}
		options.Observer = metrics
		if page, err = dashboard.New(); err != nil {
			return execution.OpenedStore{}, err
		}
	}
	s, err := store.Open(ctx, cfg.Database, options)
	if err != nil {
		return execution.OpenedStore{}, err
	}
	closing := context.WithoutCancel(ctx)
	opened := execution.OpenedStore{Store: s, Close: func() error { return s.Close(closing) }, Metrics: metrics, UI: page}
	if opened.Collector, err = collectorOf(s, cfg.Logger); err == nil {
		err = resume(ctx, cfg, s, name.Kind)
	}
	if err != nil {
		return execution.OpenedStore{}, errors.Join(err, opened.Close())
	}
	return opened, nil
}

// resume prepares a database that earlier runs have used.
func resume(ctx context.Context, cfg Config, s agl.Store, kind store.Kind) error {
	if kind == store.Memory {
		return nil
	}
	// The last run has closed the queue. Runners in other processes must not mistake that for the end of this run.
	if err := s.OpenQueue(ctx); err != nil {
		return fmt.Errorf("open the queue: %w", err)
	}
	// Only a SQLite file is known to have no other user.
	if cfg.Algorithm == nil || kind != store.SQLite {
		return nil
	}
	statuses := []agl.RolloutStatus{agl.RolloutQueuing, agl.RolloutRequeuing}
	if cfg.Strategy.Placement().Private { // otherwise runners elsewhere may be at work, and report to this store again
		statuses = append(statuses, agl.RolloutPreparing, agl.RolloutRunning)
	}
	left, err := cancelAll(ctx, s, statuses)
	if err != nil {
		return fmt.Errorf("cancel the rollouts of an earlier run: %w", err)
	}
	if left > 0 {
		cfg.Logger.Info("cancelled the rollouts that an earlier run has left unfinished", "rollouts", left)
	}
	return nil
}

const (
	cancelPage = 1000
	// cancelConcurrency is the number of rollouts that are cancelled at the same time: they share commits.
	cancelConcurrency = 64
)

// cancelAll cancels every rollout with one of the statuses.
func cancelAll(ctx context.Context, s agl.Store, statuses []agl.RolloutStatus) (cancelled int, err error) {
	unfinished := agl.QueryRolloutsParams{StatusIn: statuses, Paging: agl.Paging{Limit: cancelPage}}
	for {
		page, err := s.QueryRollouts(ctx, unfinished)
		if err != nil || len(page.Items) == 0 {
			return cancelled, err
		}
		group, ctx := errgroup.WithContext(ctx)
		group.SetLimit(cancelConcurrency)
		for _, rollout := range page.Items {
			group.Go(func() error {
				_, err := s.CancelRollout(ctx, agl.CancelRolloutParams{RolloutID: rollout.RolloutID})
				return err
			})
		}
		if err := group.Wait(); err != nil {
			return cancelled, err
		}
		cancelled += len(page.Items)
	}
}
