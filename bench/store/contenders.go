package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/store/postgres/postgrestest"
)

// server is a store that answers at urls until stop, which returns the CPU time that its processes used.
type server struct {
	urls    []string
	process *bench.Process // the last one
	stop    func() time.Duration
	// database is the CPU time that a database server used, after stop.
	database time.Duration
}

// contender is one server, or several on one database, with one kind of client.
type contender struct {
	name  string
	start func(ctx context.Context) (*server, error)
	work  func(urls []string) (worker, error)
	tabs  int // of the dashboard, open meanwhile
}

// The names of the servers, as they are reported.
const (
	namePython       = "python"
	nameMemory       = "agl"
	nameMemoryTabs   = "agl-tabs"
	nameCeiling      = "ceiling"
	nameFlushed      = "flushed"
	nameInserted     = "inserted-2"
	nameMemoryClient = "agl-client"
	nameFull         = "sqlite"
	nameFullTabs     = "sqlite-tabs"
	nameNormal       = "sqlite-normal"
	nameFullClient   = "sqlite-client"
	nameLarge        = "sqlite-large"
	namePostgres     = "postgres-2"
)

func contenders(opt options, dir string) []contender {
	wire := func(urls []string) (worker, error) { return newWireWorker(urls, opt.Runners), nil }
	typed := func(urls []string) (worker, error) {
		c, err := client.New(client.Config{URL: urls[0]})
		return &clientWorker{c}, err
	}
	memory := func(ctx context.Context) (*server, error) { return startAgl(ctx, opt, "--db", "memory:") }
	sqlite := func(sync string) func(context.Context) (*server, error) {
		return func(ctx context.Context) (*server, error) { return startSQLite(ctx, opt, dir, sync) }
	}
	all := []contender{
		{namePython, func(ctx context.Context) (*server, error) {
			return start(ctx, []string{"LITELLM_LOCAL_MODEL_COST_MAP=True"}, opt.Python, "store", "--backend", "memory", "--log-level", "ERROR")
		}, wire, 0},
		{nameMemory, memory, wire, 0},
		{nameMemoryTabs, memory, wire, openTabs},
		{nameCeiling, func(ctx context.Context) (*server, error) { return serverOf(bench.StartRole(ctx, roleCanned)) }, wire, 0},
		{nameFlushed, func(ctx context.Context) (*server, error) { return serverOf(bench.StartRole(ctx, roleFlushed)) }, wire, 0},
		{nameMemoryClient, memory, typed, 0},
		{nameFull, sqlite("full"), wire, 0},
		{nameFullTabs, sqlite("full"), wire, openTabs},
		{nameNormal, sqlite("normal"), wire, 0},
		{nameFullClient, sqlite("full"), typed, 0},
		{nameLarge, func(ctx context.Context) (*server, error) {
			path, _, err := largeDatabase(ctx, opt, dir)
			if err != nil {
				return nil, err
			}
			return startAgl(ctx, opt, "--db", "sqlite:"+path, "--sync", "full")
		}, wire, 0},
		{namePostgres, func(ctx context.Context) (*server, error) { return startPostgres(ctx, opt, 2) }, wire, 0},
		{nameInserted, startInserted, wire, 0},
	}
	var picked []contender
	for _, c := range all {
		if (c.name != namePython || opt.Python != "") && opt.picked(c.name) {
			picked = append(picked, c)
		}
	}
	return picked
}

func start(ctx context.Context, env []string, command string, args ...string) (*server, error) {
	return serverOf(bench.Start(ctx, "/v1/agl/health", env, command, args...))
}

func serverOf(p *bench.Process, err error) (*server, error) {
	if err != nil {
		return nil, err
	}
	return &server{urls: []string{p.URL}, process: p, stop: p.Stop}, nil
}

func startAgl(ctx context.Context, opt options, args ...string) (*server, error) {
	return start(ctx, nil, opt.Agl, append([]string{"store", "--log-level", "warn"}, args...)...)
}

// startSQLite starts a server on a new database, which stop deletes.
func startSQLite(ctx context.Context, opt options, dir, sync string) (*server, error) {
	own, err := os.MkdirTemp(dir, "sqlite-")
	if err != nil {
		return nil, err
	}
	s, err := startAgl(ctx, opt, "--db", "sqlite:"+filepath.Join(own, "agl.db"), "--sync", sync)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(own))
	}
	stop := s.stop
	s.stop = func() time.Duration {
		defer os.RemoveAll(own)
		return stop()
	}
	return s, nil
}

// startPostgres starts PostgreSQL with durable commits and n servers on one database.
func startPostgres(ctx context.Context, opt options, n int) (*server, error) {
	return startOnPostgres(ctx, n, func(url string) (*server, error) { return startAgl(ctx, opt, "--db", url) })
}

// startOnPostgres starts PostgreSQL with durable commits and n servers, given the address of the database.
func startOnPostgres(ctx context.Context, n int, serve func(url string) (*server, error)) (_ *server, err error) {
	database, err := postgrestest.Start(ctx, postgrestest.Config{Durable: true})
	if err != nil {
		return nil, err
	}
	all := &server{}
	var servers []*server
	all.stop = func() (cpu time.Duration) {
		for _, s := range servers {
			cpu += s.stop()
		}
		spent, err := bench.Measure(func() error { return database.Close(context.WithoutCancel(ctx)) })
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench/store: stop PostgreSQL:", err)
		}
		all.database = spent.CPU // of the children that have ended
		return cpu
	}
	url, err := database.NewDatabase(ctx)
	for i := 0; i < n && err == nil; i++ {
		var s *server
		if s, err = serve(url); err == nil {
			servers = append(servers, s)
			all.urls = append(all.urls, s.urls...)
		}
	}
	if err != nil {
		all.stop()
		return nil, err
	}
	return all, nil
}

// startInserted starts PostgreSQL and two servers of canned replies that write to one table of it.
func startInserted(ctx context.Context) (*server, error) {
	table := false
	return startOnPostgres(ctx, 2, func(url string) (*server, error) {
		if !table {
			if err := createBodies(ctx, url); err != nil {
				return nil, err
			}
			table = true
		}
		return serverOf(bench.StartRole(ctx, roleInserted, url))
	})
}

// createBodies makes the table that serveInserted writes to. What is in it is not compressed.
func createBodies(ctx context.Context, url string) error {
	db, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer db.Close(ctx)
	_, err = db.Exec(ctx, "CREATE TABLE bodies (body bytea); ALTER TABLE bodies ALTER body SET STORAGE external")
	return err
}
