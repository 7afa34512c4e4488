package main

import (
	"context"
	"math"
	"net/http"
	"runtime/debug"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/proxy"
)

// serveProxy is the proxy in a process of its own, given the URL of its engine. Its spans are dropped.
func serveProxy(args []string) error {
	debug.SetGCPercent(400) // as agl proxy does
	p, err := proxy.New(proxy.Config{Models: []proxy.Model{{Name: "m", BaseURL: args[0] + "/v1"}}, Spans: nowhere{}})
	if err != nil {
		return err
	}
	p.Start(context.Background())
	return bench.Serve(p)
}

// serveReverse is a bare ReverseProxy in place of the proxy.
func serveReverse(args []string) error {
	debug.SetGCPercent(400) // as the other
	return bench.ServeReverse(args[0])
}

// callCPU returns the CPU time that a call at some turn takes in the process of the proxy, minus that in the process of a ReverseProxy.
// The engine replies as in the turn reply, see newEngine. Of both, the minimum of all rounds counts, because other processes and the
// garbage collector only add to it.
func callCPU(ctx context.Context, turn, reply, calls int) (time.Duration, error) {
	engine := newEngine(reply)
	defer engine.Close()
	talk := &talk{}
	for range turn - 1 {
		talk.user()
		talk.assistant()
	}
	talk.user()
	body := talk.request()
	cpu := func(gateway *bench.Process, path string, flush func() error) (time.Duration, error) {
		before, err := gateway.CPU()
		if err != nil {
			return 0, err
		}
		left := calls
		for failed := 0; left > 0; {
			// Rarely, a ReverseProxy drops a reply that begins before it has seen the end of the request.
			if _, err := bench.Ask(ctx, http.DefaultTransport, http.MethodPost, gateway.URL+path, body); err == nil {
				left--
			} else if failed++; failed > calls/10 {
				return 0, err
			}
		}
		if err := flush(); err != nil {
			return 0, err
		}
		after, err := gateway.CPU()
		return (after - before) / time.Duration(calls), err
	}
	ours, err := bench.StartRole(ctx, "proxy", engine.URL)
	if err != nil {
		return 0, err
	}
	defer ours.Stop()
	bare, err := bench.StartRole(ctx, "reverse", engine.URL)
	if err != nil {
		return 0, err
	}
	defer bare.Stop()
	recorded := &proxy.Client{BaseURL: ours.URL}
	// The proxies take turns, so that other load on the machine is the same for both.
	least, leastBare := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for range rounds {
		with, err := cpu(ours, "/rollout/ro/attempt/at/v1/chat/completions", func() error { return recorded.Flush(ctx, []string{"ro"}) })
		if err != nil {
			return 0, err
		}
		without, err := cpu(bare, "/v1/chat/completions", func() error { return nil })
		if err != nil {
			return 0, err
		}
		least, leastBare = min(least, with), min(leastBare, without)
	}
	return least - leastBare, nil
}

// rounds is how often CPU time is measured.
const rounds = 30

// nowhere takes spans and drops them.
type nowhere struct{ agl.UnimplementedStore }

func (nowhere) Capabilities() agl.Capabilities { return agl.Capabilities{AddSpansJSON: true} }

func (nowhere) AddSpansJSON(context.Context, agl.AddSpansJSONParams) (agl.AddSpansResult, error) {
	return agl.AddSpansResult{}, nil
}

func (nowhere) ReserveSequenceIDs(context.Context, agl.ReserveSequenceIDsParams) (int64, error) {
	return 1, nil
}
