package main

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/agl-go/agl/collect"
	"github.com/agl-go/agl/release"
)

// collecting returns the collector of a store, and lets it decide about the store's release
// until stop.
func collecting(ctx context.Context, engine collect.Store, rewardWindow time.Duration, log *slog.Logger) (collector *collect.Collector, stop func(), err error) {
	collector, err = collect.New(collect.Config{Store: engine, RewardWindow: rewardWindow, Logger: log})
	if err != nil {
		return nil, nil, err
	}
	watcher := release.Watcher{Releases: release.New(engine), Collector: collector, Spans: engine, Logger: log}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { watcher.Run(ctx) })
	return collector, func() { cancel(); running.Wait() }, nil
}
