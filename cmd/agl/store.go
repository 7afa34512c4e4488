package main

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/dashboard"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/gateway"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/rest/project"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/driver"
	"github.com/agl-go/agl/store/memory"
	"github.com/agl-go/agl/store/postgres"
	"github.com/agl-go/agl/store/sqlite"
	"github.com/agl-go/agl/trainer/runfile"
)

type storeCommand struct {
	flags.Listen `set:"port=4747"`
	flags.Trust
	flags.Log `set:"logLevel=info"`
	gatewayFlags
	signInFlags
	openFlag

	DB flags.Database `name:"db" default:"${database}" env:"AGL_DB" placeholder:"DATABASE" help:"Where the data is kept: sqlite:PATH, postgres://USER:PASSWORD@HOST/DATABASE, or memory:, which loses it with the process. Default: ${default}."`
	projectsFlag
	Token               flags.Token        `env:"AGL_TOKEN" placeholder:"TOKEN" help:"Require this bearer token of every request, or a key that agl key create has made. The token may do everything."`
	CORSOrigin          []string           `name:"cors-origin" sep:"none" placeholder:"ORIGIN" help:"Let pages of this origin call the store; repeat it for several, * is every origin."`
	AllowedHost         []string           `placeholder:"NAME" help:"Without a token: let the store be called under this name, too; repeat it for several. Addresses, localhost and this machine's name always work, other names not, so that web pages cannot reach it by DNS rebinding."`
	DefaultUnresponsive flags.Duration     `placeholder:"TIME" help:"End an attempt without a heartbeat for this long (10m, at least 20s) if its rollout sets no limit itself; this also ends attempts whose claim never reached the runner. Default: never."`
	RetainFinished      flags.Duration     `placeholder:"TIME" help:"Remove the spans of rollouts that finished this long ago (7d); the rollouts stay. Default: never."`
	RetainBytes         flags.Size         `placeholder:"SIZE" help:"Remove the spans of finished rollouts, the oldest first, while all spans exceed this size (20GB); the rollouts stay. Default: never."`
	RetainRollouts      retention          `placeholder:"BOUND" help:"Delete finished rollouts, with their attempts and spans, beyond this age, number or both (90d, 100000, 90d,100000), oldest first. Default: never."`
	RetainResources     retention          `placeholder:"BOUND" help:"Delete published resources beyond this age, number or both, except the latest and those of unfinished rollouts. Default: never."`
	RetainWorkers       retention          `placeholder:"BOUND" help:"Delete workers that are not busy beyond this age, number or both. Default: 30d,10000."`
	RetainSequences     retention          `placeholder:"BOUND" help:"Delete the sequence ids of rollouts that do not exist beyond this age, number or both. Default: 30d,10000."`
	IdempotencyTTL      flags.Duration     `name:"idempotency-ttl" placeholder:"TIME" help:"The lifetime of idempotency keys. Default: 24h, 10m in memory."`
	EventTTL            flags.Duration     `name:"event-ttl" placeholder:"TIME" help:"The lifetime of events. Default: 1h."`
	MaxEvents           int                `placeholder:"N" help:"How many events are kept. Default: 100000."`
	RewardWindow        flags.Duration     `placeholder:"TIME" help:"How long a finished rollout without a reward waits for one (24h) before GET /v1/agl/collect hands it out; the metadata agl.reward_window of a rollout, in seconds, comes first. Default: 0s."`
	DBConnections       int                `name:"db-connections" placeholder:"N" help:"postgres: only: the most connections of this server, at least 4. Default: 8."`
	DBConnectTimeout    flags.Duration     `name:"db-connect-timeout" placeholder:"TIME" help:"postgres: only: the time to connect. Default: 5s."`
	DBStatementTimeout  flags.Duration     `name:"db-statement-timeout" placeholder:"TIME" help:"postgres: only: the time of one statement. Default: 15s."`
	DBLockTimeout       flags.Duration     `name:"db-lock-timeout" placeholder:"TIME" help:"postgres: only: the time that a write waits for rows that another server has locked, before it starts again. Default: 2s."`
	Sync                *syncMode          `placeholder:"full|normal" help:"sqlite: only: full (default) acknowledges what survives a power failure, normal what survives the end of this process, and is faster."`
	EvictionThreshold   *flags.MemoryLimit `placeholder:"LIMIT" help:"memory: only: spans of finished rollouts are evicted above this size: a share of the machine's memory (0.7, the default) or bytes (2GiB)."`
	SafeThreshold       *flags.MemoryLimit `placeholder:"LIMIT" help:"memory: only: eviction goes down to this size: a share of the eviction threshold (0.8, the default) or bytes."`
	ScanDebounce        float64            `name:"scan-debounce-seconds" default:"10" help:"Accepted for compatibility, without effect: deadlines need no scan."`
}

func (c *storeCommand) Validate() error {
	if c.ScanDebounce < 0 {
		return fmt.Errorf("--scan-debounce-seconds=%v: must not be negative", c.ScanDebounce)
	}
	if c.DefaultUnresponsive != 0 && c.DefaultUnresponsive < flags.Duration(runfile.MinUnresponsive) {
		return fmt.Errorf("--default-unresponsive=%s: must be at least %s, because runners send a heartbeat every 10s; the limit of a rollout itself may be shorter (agl enqueue --unresponsive)",
			time.Duration(c.DefaultUnresponsive), runfile.MinUnresponsive)
	}
	if err := c.place(&c.DB, c.Gateway); err != nil {
		return err
	}
	if c.Sync != nil && c.DB.Kind != store.SQLite {
		return fmt.Errorf("--sync=%s: is for sqlite: only, and the database is %s", c.Sync.Sync, c.DB)
	}
	if c.postgres() != (postgres.Config{}) && c.DB.Kind != store.Postgres {
		return fmt.Errorf("--db-connections, --db-connect-timeout, --db-statement-timeout and --db-lock-timeout are for postgres: only, and the database is %s", c.DB)
	}
	if c.MaxEvents < 0 {
		return fmt.Errorf("--max-events=%d: must not be negative", c.MaxEvents)
	}
	for _, f := range []struct {
		name string
		set  *flags.MemoryLimit
	}{{"eviction-threshold", c.EvictionThreshold}, {"safe-threshold", c.SafeThreshold}} {
		if f.set != nil && c.DB.Kind != store.Memory {
			return fmt.Errorf("--%s=%s: is for memory: only, and the database is %s; use --retain-bytes or --retain-finished", f.name, f.set, c.DB)
		}
	}
	if c.DB.Kind == store.Memory {
		if _, err := memory.New(c.memory()); err != nil {
			return fmt.Errorf("--eviction-threshold --safe-threshold: %w", err)
		}
	}
	if _, err := httpserver.NewGuard(c.CORSOrigin, nil); err != nil {
		return fmt.Errorf("--cors-origin: %w", err)
	}
	for _, host := range c.AllowedHost {
		if host == "" || strings.ContainsAny(host, "/:@*, ") {
			return fmt.Errorf("--allowed-host=%s: must be a name alone, such as store.internal, without a scheme, a port or *", host)
		}
	}
	if err := c.gatewayFlags.validate(); err != nil {
		return err
	}
	if err := c.signInFlags.validate(c.token(), string(c.TLSClientCA)); err != nil {
		return err
	}
	return c.Check(c.token() != "", "set --token (or AGL_TOKEN), or allow it with --no-auth")
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

func (c *storeCommand) postgres() postgres.Config {
	return postgres.Config{
		MaxConns:         c.DBConnections,
		ConnectTimeout:   time.Duration(c.DBConnectTimeout),
		StatementTimeout: time.Duration(c.DBStatementTimeout),
		LockTimeout:      time.Duration(c.DBLockTimeout),
	}
}

func (c *storeCommand) run(ctx context.Context, out *console.Console) (err error) {
	log := c.Logger(out.Err)
	listener, err := c.OpenPort(ctx, log)
	if err != nil {
		return err
	}
	serving := false
	defer func() {
		if !serving {
			err = errors.Join(err, listener.Close())
		}
	}()
	closeLater := func(end func(context.Context) error) {
		closing, cancel := execution.CleanupContext(ctx, c.DrainTimeout)
		defer cancel()
		err = errors.Join(err, end(closing))
	}
	settings, err := c.TLS()
	if err != nil {
		return err
	}
	page, err := dashboard.New()
	if err != nil {
		return err
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	if err := c.makeDir(c.DB); err != nil {
		return err
	}
	opener := storeOpener{storeCommand: c, settings: settings, page: page, failed: newThrottle(log), log: log}
	var keys *access.Keys
	var projects *project.Registry
	own, err := opener.open(ctx, c.DB.Name, "", registry, func(engine *store.Store, config *server.Config) {
		keys, projects = access.NewKeys(engine), c.registry(c.DB, engine)
		config.Keys, config.Projects = keys, projects
	})
	if err != nil {
		return err
	}
	defer func() { closeLater(own.Close) }()
	v1, err := c.openGateway(ctx, gateway.Config{
		Store: own.engine, Key: c.token(), Access: keys, Failed: opener.failed, Budgets: keys, Audit: access.NewAudit(own.engine), Origins: c.CORSOrigin, AllowedHosts: c.allowedHosts(), Logger: log,
	}, settings)
	if err != nil {
		return err
	}
	drain, handler := own.Drain, http.Handler(own)
	if v1 != nil {
		defer v1.Close()
		handler = beside(gateway.Owns, v1, handler)
		drain = func() { v1.Drain(); own.Drain() }
	}
	if projects != nil {
		host := project.NewHost(project.Config{Registry: projects, Open: opener.projectsOf(projects), Logger: log})
		drain = func() { host.Drain(); own.Drain() }
		handler = beside(func(path string) bool { return strings.HasPrefix(path, project.Prefix) }, host, handler)
		defer func() { closeLater(host.Close) }()
	}
	serving = true
	return service{name: "store", handler: handler, drain: drain, listen: &c.Listen, log: log}.serve(ctx, c.listening(out), listener)
}

// storeOpener opens stores: the server's own, and those of its projects.
type storeOpener struct {
	*storeCommand

	settings *tls.Config // of calls to the identity provider
	page     http.Handler
	failed   *access.Throttle
	log      *slog.Logger
}

// openStore is a store with its API.
type openStore struct {
	*server.Server

	engine         *store.Store
	stopCollecting func()
}

// Close closes the store.
func (s *openStore) Close(ctx context.Context) error {
	s.stopCollecting() // before the engine closes
	return s.engine.Close(ctx)
}

// open opens the store of a project, "" for the server's own. complete adds what the API takes from the store.
func (o storeOpener) open(
	ctx context.Context, dsn, name string, registry *prometheus.Registry, complete func(*store.Store, *server.Config),
) (_ *openStore, err error) {
	metrics, err := server.NewMetrics(registry)
	if err != nil {
		return nil, err
	}
	engine, err := o.openEngine(ctx, dsn, metrics, o.log)
	if err != nil {
		return nil, err
	}
	opened := &openStore{engine: engine, stopCollecting: func() {}}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.Close(context.WithoutCancel(ctx)))
		}
	}()
	collector, stopCollecting, err := collecting(ctx, engine, time.Duration(o.RewardWindow), o.log)
	if err != nil {
		return nil, err
	}
	opened.stopCollecting = stopCollecting
	config := server.Config{
		UI: o.page, Store: engine, Collector: collector, Token: o.token(), Audit: access.NewAudit(engine), Failed: o.failed,
		CORSOrigins: o.CORSOrigin, AllowedHosts: o.allowedHosts(), Metrics: metrics, Version: version(), Logger: o.log,
		SecureCookies: o.TLSCert != "" || len(o.TrustedProxy) > 0,
	}
	complete(engine, &config)
	base := ""
	if name != "" {
		base = project.Prefix + name
	}
	if err := o.admit(&config, name, base, o.settings); err != nil {
		return nil, err
	}
	opened.Server, err = server.New(config)
	return opened, err
}

// projectsOf returns the function that opens the store of a project.
func (o storeOpener) projectsOf(projects *project.Registry) func(ctx context.Context, name string) (*project.Tenant, error) {
	return func(ctx context.Context, name string) (*project.Tenant, error) {
		o := o
		o.log = o.log.With("project", name)
		dsn, _, err := o.dsn(o.DB, name)
		if err != nil {
			return nil, err
		}
		opened, err := o.open(ctx, dsn, name, prometheus.NewRegistry(), func(engine *store.Store, config *server.Config) {
			config.SpanSecret = spanSecret(o.token(), name)
			config.Keys = access.NewProjectKeys(engine, access.NewProjectLimits(func(ctx context.Context) (access.Limits, error) {
				p, err := projects.Get(ctx, name)
				return p.Limits, err
			}))
		})
		if err != nil {
			return nil, err
		}
		return &project.Tenant{
			Handler: opened, Drain: opened.Drain, Close: opened.Close,
			InUse: func(ctx context.Context) error { return inUse(ctx, opened.engine, time.Now()) },
		}, nil
	}
}

// token is the token of the store: a key that protects the gateway alone would leave the
// same rollouts open under /v1/agl.
func (c *storeCommand) token() string {
	if c.Token == "" && c.Gateway {
		return string(c.GatewayKey)
	}
	return string(c.Token)
}

// allowedHosts are the names under which a store without a token may be called; nil is
// every name.
func (c *storeCommand) allowedHosts() []string {
	if c.token() != "" {
		return nil
	}
	names := append([]string{c.Host}, c.AllowedHost...)
	if name, err := os.Hostname(); err == nil {
		names = append(names, name)
	}
	return names
}

// openEngine opens the store over a database.
func (c *storeCommand) openEngine(ctx context.Context, name string, metrics *server.Metrics, log *slog.Logger) (*store.Store, error) {
	options := store.Options{
		Config: store.Config{
			Logger: log, Observer: metrics,
			DefaultUnresponsive: time.Duration(c.DefaultUnresponsive),
			Retention: store.Retention{
				Spans:     store.SpanBound{Age: time.Duration(c.RetainFinished), Bytes: int64(c.RetainBytes)},
				Rollouts:  c.RetainRollouts.Bound,
				Workers:   c.RetainWorkers.Bound,
				Resources: c.RetainResources.Bound,
				Sequences: c.RetainSequences.Bound,
			},
		},
		Lifetimes: driver.Lifetimes{
			IdempotencyTTL: time.Duration(c.IdempotencyTTL), EventTTL: time.Duration(c.EventTTL), MaxEvents: c.MaxEvents,
		},
		Memory:   c.memory(),
		Postgres: c.postgres(),
	}
	if c.Sync != nil {
		options.SQLite.Sync = c.Sync.Sync
	}
	engine, err := store.Open(ctx, name, options)
	if err != nil {
		return nil, err
	}
	if err := c.announce(ctx, name, log); err != nil {
		return nil, errors.Join(err, engine.Close(context.WithoutCancel(ctx)))
	}
	return engine, nil
}

// announce logs which database the store uses.
func (c *storeCommand) announce(ctx context.Context, name string, log *slog.Logger) (err error) {
	if c.DB.Kind == store.Memory {
		log.Info("the store is kept in memory and lost with this process")
		return nil
	}
	db, err := store.OpenDatabase(ctx, name)
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

// retention limits the age and the number of records.
type retention struct{ store.Bound }

// UnmarshalText reads never, an age, a number, or both with a comma between them.
func (r *retention) UnmarshalText(text []byte) error {
	r.Bound = store.Bound{Age: -1, Count: -1}
	if string(text) == "never" {
		return nil
	}
	for part := range strings.SplitSeq(string(text), ",") {
		if n, err := strconv.Atoi(part); err == nil && n > 0 && r.Count < 0 {
			r.Count = n
			continue
		}
		var age flags.Duration
		if err := age.UnmarshalText([]byte(part)); err != nil || r.Age >= 0 {
			return fmt.Errorf("got %q, must be never, an age such as 30d (at most %dd), a number above 0, or both such as 30d,10000", text, flags.LongestDays)
		}
		r.Age = time.Duration(age)
	}
	return nil
}

// syncMode is the durability of an acknowledged write.
type syncMode struct{ sqlite.Sync }

// UnmarshalText reads a mode.
func (s *syncMode) UnmarshalText(text []byte) (err error) {
	if s.Sync, err = sqlite.ParseSync(string(text)); err != nil {
		return fmt.Errorf("got %q, must be full or normal", text)
	}
	return nil
}
