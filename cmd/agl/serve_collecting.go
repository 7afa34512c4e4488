package main

import (
	"context"
	"log/slog"
	"time"

	"github.com/agl-go/agl/collect"
	"github.com/agl-go/agl/internal/background"
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
	return collector, background.Start(context.WithoutCancel(ctx), watcher.Run), nil
}
