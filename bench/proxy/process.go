package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/http/pprof"
	"net/url"
	"os"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest/client"
)

// The environment of the processes of the benchmark.
const (
	backendEnv = "AGL_BENCH_BACKEND"
	storeEnv   = "AGL_BENCH_STORE"
	spoolEnv   = "AGL_BENCH_SPOOL"
)

// serveReverse is the bare reverse proxy.
func serveReverse() error {
	target, err := url.Parse(os.Getenv(backendEnv))
	if err != nil {
		return err
	}
	bare := httputil.NewSingleHostReverseProxy(target)
	bare.Transport = &http.Transport{MaxIdleConnsPerHost: 1024, DisableCompression: true}
	return bench.Serve(bare)
}

// serveAgl is the gateway with a store behind it.
func serveAgl() error {
	debug.SetGCPercent(400) // as agl proxy does
	store, err := client.New(client.Config{URL: os.Getenv(storeEnv), RetryTimeout: -1})
	if err != nil {
		return err
	}
	p, err := proxy.New(proxy.Config{
		Models: []proxy.Model{{Name: "m", BaseURL: os.Getenv(backendEnv) + "/v1"}}, Spans: store, SpoolDir: os.Getenv(spoolEnv),
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

// profile profiles a process for a time; wait returns when the file is written.
func profile(ctx context.Context, p *bench.Process, file string, span time.Duration) (wait func() error) {
	done := make(chan error, 1)
	go func() {
		done <- func() (err error) {
			url := p.URL + profilePath + "?seconds=" + strconv.Itoa(max(int(span.Seconds()), 1))
			req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
			if err != nil {
				return err
			}
			res, err := http.DefaultClient.Do(req)
			if err != nil {
				return err
			}
			defer res.Body.Close()
			if res.StatusCode != http.StatusOK {
				return fmt.Errorf("profile: %s", res.Status)
			}
			f, err := os.Create(file)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, f.Close()) }()
			_, err = io.Copy(f, res.Body)
			return err
		}()
	}()
	return func() error { return <-done }
}
