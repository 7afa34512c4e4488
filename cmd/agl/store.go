package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/agl-go/agl/rest"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
)

type storeCommand struct {
	listenFlags
	logFlags
	Port              port     `default:"4747" help:"Port to listen on; 0 takes a free one."`
	Token             string   `env:"AGL_TOKEN" placeholder:"TOKEN" help:"Ask this bearer token of every request."`
	DB                string   `name:"db" default:"memory:" help:"Where the data is kept: memory: keeps it in this process and loses it with it."`
	CORSOrigin        []string `name:"cors-origin" sep:"none" placeholder:"ORIGIN" help:"Let pages of this origin call the store; repeat it for several, * is every origin."`
	EvictionThreshold limit    `default:"0.7" help:"Spans of finished rollouts are evicted above this size: a share of the machine's memory (0.7) or bytes (2GiB)."`
	SafeThreshold     limit    `default:"0.8" help:"Eviction goes down to this size: a share of the eviction threshold (0.8) or bytes."`
	ScanDebounce      float64  `name:"scan-debounce-seconds" default:"10" help:"Accepted for compatibility. Deadlines fire by themselves, whatever it says."`
}

// Help is shown below the flags.
func (storeCommand) Help() string {
	return "SIGTERM and SIGINT drain the server: blocked calls are released and accepted requests answered. A second signal ends it at once.\n\n" +
		"Examples:\n  agl store\n  AGL_TOKEN=secret agl store --host 0.0.0.0 --port 4747"
}

// Validate is called by kong.
func (c *storeCommand) Validate() error {
	if c.ScanDebounce < 0 {
		return fmt.Errorf("--scan-debounce-seconds=%v: must not be negative", c.ScanDebounce)
	}
	scheme, rest, found := strings.Cut(c.DB, ":")
	if !found || scheme != "memory" || rest != "" {
		return fmt.Errorf("--db=%s: must be %q", redactURL(c.DB), "memory:")
	}
	if _, err := memory.New(c.memory()); err != nil {
		return fmt.Errorf("--eviction-threshold=%v --safe-threshold=%v: %w", c.EvictionThreshold, c.SafeThreshold, err)
	}
	return c.check(c.Token != "", "set --token (or AGL_TOKEN), or allow it with --no-auth")
}

func (c *storeCommand) memory() memory.Config {
	return memory.Config{EvictionThreshold: memory.Limit(c.EvictionThreshold), SafeThreshold: memory.Limit(c.SafeThreshold)}
}

func (c *storeCommand) run(ctx context.Context, m *Main) (err error) {
	log := c.logger(m.Stderr)
	listener, err := listen(ctx, c.Host, c.Port)
	if err != nil {
		return err
	}
	driver, err := memory.New(c.memory())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	metrics, err := rest.NewMetrics(prometheus.NewRegistry())
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	engine, err := store.New(ctx, store.Config{Driver: driver, Logger: log, Observer: metrics})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	defer func() { err = errors.Join(err, engine.Close(context.WithoutCancel(ctx))) }()
	server, err := rest.NewServer(rest.ServerConfig{
		Store: engine, Token: c.Token, CORSOrigins: c.CORSOrigin, Metrics: metrics, Version: version(), Logger: log,
	})
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return service{name: "store", handler: server, drain: server.Drain, drainTimeout: c.DrainTimeout, log: log}.serve(ctx, m, listener)
}

// limit is an amount of memory: a share up to 1, or a size with a unit.
type limit memory.Limit

// String is the amount as it may be given.
func (l limit) String() string {
	if l.Bytes > 0 {
		return strconv.FormatInt(l.Bytes, 10)
	}
	return strconv.FormatFloat(l.Ratio, 'f', -1, 64)
}

// units are the binary units of sizes, the longest first.
func units() []struct {
	name  string
	bytes int64
} {
	return []struct {
		name  string
		bytes int64
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"B", 1}}
}

// UnmarshalText reads an amount. As in the reference a number with a point is a
// share, one without is bytes.
func (l *limit) UnmarshalText(text []byte) error {
	s := string(text)
	wrong := fmt.Errorf("got %q, must be a share above 0 and up to 1 such as 0.7, or a size such as 2GiB", s)
	if ratio, err := strconv.ParseFloat(s, 64); err == nil && strings.Contains(s, ".") {
		if ratio <= 0 || ratio > 1 { // 0 would be taken for the default
			return wrong
		}
		*l = limit{Ratio: ratio}
		return nil
	}
	factor := int64(1)
	for _, u := range units() {
		if number, ok := strings.CutSuffix(s, u.name); ok {
			s, factor = number, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(s), 10, 64)
	if err != nil || n <= 0 || n > (1<<62)/factor {
		return wrong
	}
	*l = limit{Bytes: n * factor}
	return nil
}
