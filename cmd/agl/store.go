package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/rest"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/backend"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/sqlite"
)

type storeCommand struct {
	flags.Listen `set:"port=4747"`
	flags.Log    `set:"logLevel=info"`

	DB                  flags.Database     `name:"db" default:"${database}" env:"AGL_DB" placeholder:"DATABASE" help:"Where the data is kept: sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE, or memory:, which loses it with the process. Default: ${default}."`
	Token               string             `env:"AGL_TOKEN" placeholder:"TOKEN" help:"Ask this bearer token of every request."`
	CORSOrigin          []string           `name:"cors-origin" sep:"none" placeholder:"ORIGIN" help:"Let pages of this origin call the store; repeat it for several, * is every origin."`
	DefaultUnresponsive flags.Duration     `placeholder:"TIME" help:"Give up an attempt that is silent for so long (10m) although its rollout names no limit itself; catches claims whose answer was lost. Default: never."`
	RetainFinished      flags.Duration     `placeholder:"TIME" help:"Remove the spans of rollouts that finished so long ago (7d); the rollouts stay. Default: never."`
	RetainBytes         flags.Size         `placeholder:"SIZE" help:"Remove spans above this size of all of them (20GB), those of the rollouts that finished first first; the rollouts stay. Default: never."`
	Sync                *syncMode          `placeholder:"full|normal" help:"sqlite: only: full (default) acknowledges what survives a power failure, normal what survives the end of this process, and is faster."`
	EvictionThreshold   *flags.MemoryLimit `placeholder:"LIMIT" help:"memory: only: spans of finished rollouts are evicted above this size: a share of the machine's memory (0.7, the default) or bytes (2GiB)."`
	SafeThreshold       *flags.MemoryLimit `placeholder:"LIMIT" help:"memory: only: eviction goes down to this size: a share of the eviction threshold (0.8, the default) or bytes."`
	ScanDebounce        float64            `name:"scan-debounce-seconds" default:"10" help:"Accepted for compatibility. Deadlines fire by themselves, whatever it says."`
}

// Help is shown below the flags.
func (storeCommand) Help() string {
	return "SIGTERM and SIGINT drain the server: blocked calls are released and accepted requests answered. A second signal ends it at once.\n\n" +
		"Examples:\n  agl store\n  AGL_TOKEN=secret agl store --host 0.0.0.0 --db postgres://agl:PASSWORD@db/agl\n  agl store --db sqlite:/var/lib/agl/agl.db --retain-finished 7d"
}

// Validate is called by kong.
func (c *storeCommand) Validate() error {
	if c.ScanDebounce < 0 {
		return fmt.Errorf("--scan-debounce-seconds=%v: must not be negative", c.ScanDebounce)
	}
	if c.Sync != nil && c.DB.Kind != backend.SQLite {
		return fmt.Errorf("--sync=%s: is for sqlite: only, and the database is %s", c.Sync.Sync, c.DB)
	}
	for _, f := range []struct {
		name string
		set  *flags.MemoryLimit
	}{{"eviction-threshold", c.EvictionThreshold}, {"safe-threshold", c.SafeThreshold}} {
		if f.set != nil && c.DB.Kind != backend.Memory {
			return fmt.Errorf("--%s=%s: is for memory: only, and the database is %s; use --retain-bytes or --retain-finished", f.name, f.set, c.DB)
		}
	}
	if c.DB.Kind == backend.Memory {
		if _, err := memory.New(c.memory()); err != nil {
			return fmt.Errorf("--eviction-threshold --safe-threshold: %w", err)
		}
	}
	return c.Check(c.Token != "", "set --token (or AGL_TOKEN), or allow it with --no-auth")
}

func (c *storeCommand) memory() (config memory.Config) {
	if c.EvictionThreshold != nil {
		config.EvictionThreshold = memory.Limit(*c.EvictionThreshold)
	}
	if c.SafeThreshold != nil {
		config.SafeThreshold = memory.Limit(*c.SafeThreshold)
	}
	return config
}

func (c *storeCommand) run(ctx context.Context, out *console.Console) (err error) {
	log := c.Logger(out.Err)
	listener, err := c.OpenPort(ctx)
	if err != nil {
		return err
	}
	metrics, err := rest.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	engine, err := c.open(ctx, metrics, log)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() {
		closing, cancel := execution.CleanupContext(ctx, c.DrainTimeout)
		defer cancel()
		err = errors.Join(err, engine.Close(closing))
	}()
	server, err := rest.NewServer(rest.ServerConfig{
		Store: engine, Token: c.Token, CORSOrigins: c.CORSOrigin, Metrics: metrics, Version: version(), Logger: log,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return service{name: "store", handler: server, drain: server.Drain, drainTimeout: c.DrainTimeout, log: log}.serve(ctx, out, listener)
}

// open opens the store over its database.
func (c *storeCommand) open(ctx context.Context, metrics *rest.Metrics, log *slog.Logger) (*store.Store, error) {
	config := backend.Config{DSN: c.DB.DSN, Memory: c.memory(), Logger: log}
	if c.Sync != nil {
		config.Sync = c.Sync.Sync
	}
	driver, err := backend.Open(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := c.announce(ctx, log); err != nil {
		return nil, errors.Join(err, driver.Close(context.WithoutCancel(ctx)))
	}
	engine, err := store.New(ctx, store.Config{
		Driver: driver, Logger: log, Observer: metrics,
		DefaultUnresponsive: time.Duration(c.DefaultUnresponsive),
		Retain:              store.Retain{Finished: time.Duration(c.RetainFinished), Bytes: int64(c.RetainBytes)},
	})
	if err != nil {
		return nil, errors.Join(err, driver.Close(context.WithoutCancel(ctx)))
	}
	return engine, nil
}

// announce logs what the store is kept in.
func (c *storeCommand) announce(ctx context.Context, log *slog.Logger) (err error) {
	if c.DB.Kind == backend.Memory {
		log.Info("the store is kept in memory and lost with this process")
		return nil
	}
	db, err := backend.OpenDatabase(ctx, c.DB.DSN)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	status, err := db.Status(ctx)
	if err != nil {
		return err
	}
	log.Info("database is open", "database", status.Location, "engine", status.Name, "schema", status.SchemaVersion,
		"rollouts", status.Contents.TotalRollouts, "spans", status.Contents.TotalSpans)
	return nil
}

// syncMode is what an acknowledged write survives.
type syncMode struct{ sqlite.Sync }

// UnmarshalText reads a mode.
func (s *syncMode) UnmarshalText(text []byte) (err error) {
	if s.Sync, err = sqlite.ParseSync(string(text)); err != nil {
		return fmt.Errorf("got %q, must be full or normal", text)
	}
	return nil
}
