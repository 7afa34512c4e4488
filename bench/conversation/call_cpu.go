package main

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime/debug"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/proxy"
)

// The processes whose CPU time is measured, and where they find the engine.
const (
	roleProxy   = "proxy"
	roleReverse = "reverse"
	engineEnv   = "AGL_BENCH_ENGINE"
)

// cpuPath is the route of a gateway's CPU time so far, in nanoseconds, after everything has been recorded.
const cpuPath = "/bench/cpu"

// serveGateway is a gateway in a process of its own: the proxy, whose spans are dropped, or a bare ReverseProxy.
func serveGateway(role string) error {
	debug.SetGCPercent(400) // as agl proxy does
	mux := http.NewServeMux()
	flush := func(context.Context) error { return nil }
	if role == roleProxy {
		p, err := proxy.New(proxy.Config{Models: []proxy.Model{{Name: "m", BaseURL: os.Getenv(engineEnv) + "/v1"}}, Spans: nowhere{}})
		if err != nil {
			return err
		}
		p.Start(context.Background())
		flush = func(ctx context.Context) error { return p.Flush(ctx, []string{"ro"}) }
		mux.Handle("/", p)
	} else {
		target, err := url.Parse(os.Getenv(engineEnv))
		if err != nil {
			return err
		}
		mux.Handle("/", httputil.NewSingleHostReverseProxy(target))
	}
	mux.HandleFunc("POST "+cpuPath, func(w http.ResponseWriter, r *http.Request) {
		spent := time.Duration(0)
		err := flush(r.Context())
		if err == nil {
			spent, err = bench.CPU()
		}
		if err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		_, _ = fmt.Fprint(w, spent.Nanoseconds()) // the caller reports an incomplete reply
	})
	return bench.Serve(mux)
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
	cpu := func(gateway *bench.Process, path string) (time.Duration, error) {
		before, err := cpuOf(ctx, gateway)
		if err != nil {
			return 0, err
		}
		left := calls
		for failed := 0; left > 0; {
			// Rarely, a ReverseProxy drops a reply that begins before it has seen the end of the request.
			if _, err := post(ctx, gateway.URL+path, body); err == nil {
				left--
			} else if failed++; failed > calls/10 {
				return 0, err
			}
		}
		after, err := cpuOf(ctx, gateway)
		return (after - before) / time.Duration(calls), err
	}
	ours, err := bench.StartRole(ctx, roleProxy, engineEnv+"="+engine.URL)
	if err != nil {
		return 0, err
	}
	defer ours.Stop()
	bare, err := bench.StartRole(ctx, roleReverse, engineEnv+"="+engine.URL)
	if err != nil {
		return 0, err
	}
	defer bare.Stop()
	// The proxies take turns, so that other load on the machine is the same for both.
	least, leastBare := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
	for range rounds {
		with, err := cpu(ours, "/rollout/ro/attempt/at/v1/chat/completions")
		if err != nil {
			return 0, err
		}
		without, err := cpu(bare, "/v1/chat/completions")
		if err != nil {
			return 0, err
		}
		least, leastBare = min(least, with), min(leastBare, without)
	}
	return least - leastBare, nil
}

// cpuOf returns the CPU time of a gateway so far.
func cpuOf(ctx context.Context, gateway *bench.Process) (spent time.Duration, err error) {
	text, err := post(ctx, gateway.URL+cpuPath, nil)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Sscan(string(text), &spent)
	return spent, err
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
