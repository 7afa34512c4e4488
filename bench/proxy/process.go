package main

import (
	"context"
	"net/http"
	"net/http/pprof"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest/client"
)

// serveAgl is the gateway, given the URLs of its backend and its store, and its spool directory, if any.
func serveAgl(args []string) error {
	backend, storeURL, spool := args[0], args[1], args[2]
	debug.SetGCPercent(400) // as agl proxy does
	store, err := client.New(client.Config{URL: storeURL, RetryTimeout: -1})
	if err != nil {
		return err
	}
	p, err := proxy.New(proxy.Config{
		Models: []proxy.Model{{Name: "m", BaseURL: backend + "/v1"}}, Spans: store, SpoolDir: spool,
		Access: store.Keys(), Budgets: store,
	})
	if err != nil {
		return err
	}
	mux := http.NewServeMux()
	p.Start(context.Background())
	mux.HandleFunc("GET "+profilePath, pprof.Profile)
	mux.Handle("/", p)
	return bench.Serve(mux)
}

// profilePath is the route of the gateway's CPU profile.
const profilePath = "/debug/pprof/profile"

// profile profiles a process for a time and writes the profile to a file.
func profile(ctx context.Context, p *bench.Process, file string, span time.Duration) error {
	url := p.URL + profilePath + "?seconds=" + strconv.Itoa(max(int(span.Seconds()), 1))
	samples, err := bench.Ask(ctx, http.DefaultTransport, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	return os.WriteFile(file, samples, 0o600)
}
