// Command store measures store servers over HTTP with the work of a training
// run: simulated runners that dequeue, fetch resources, send spans one by one
// and report, and an algorithm that enqueues, waits, and reads every span back.
//
// One run first starts agl's server a few times to see how soon it answers, then
// measures several servers one after the other with the same load: the
// Python package's server, agl's, agl's under the Go client (batches, long
// polls), and a net/http server that answers the same calls with canned
// replies, which is the ceiling. Read the ratios, not the absolute figures.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kong"
)

type options struct {
	Agl     string        `default:"./agl" help:"The agl binary to measure (make build)." placeholder:"FILE"`
	Python  string        `default:".cache/compat-venv/bin/agl" help:"The Python package's agl command (test/compat/venv.sh); empty skips it." placeholder:"FILE"`
	DB      string        `default:"memory:" help:"The database of agl's server." placeholder:"URL"`
	Runners int           `default:"64" help:"Simulated runners."`
	Time    time.Duration `default:"10s" help:"How long each server is measured, after a warm-up of a fifth of it."`
	Rounds  int           `default:"1" help:"How often all servers are measured; the median counts."`
	Starts  int           `default:"10" help:"Cold starts of agl's server that are measured; 0 skips them."`
	Only    []string      `help:"Measure only these: python, agl, agl-client, ceiling." placeholder:"NAME"`
}

func main() {
	if address := os.Getenv(cannedEnv); address != "" {
		fmt.Fprintln(os.Stderr, "bench/store:", serveCanned(address))
		os.Exit(1)
	}
	var opt options
	kong.Parse(&opt, kong.Description("Measures store servers over HTTP, one run, as ratios."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, opt)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/store:", err)
		os.Exit(1)
	}
}

// contender is one server under one kind of client.
type contender struct {
	name  string
	start func(ctx context.Context) (*server, error)
	work  func(url string, opt options) worker
}

func contenders(opt options) []contender {
	agl := func(ctx context.Context) (*server, error) { return startAgl(ctx, opt) }
	wire := func(verify bool) func(string, options) worker {
		return func(url string, opt options) worker { return newWireWorker(url, opt.Runners, verify) }
	}
	all := []contender{
		{"python", func(ctx context.Context) (*server, error) {
			return startProcess(ctx, []string{"LITELLM_LOCAL_MODEL_COST_MAP=True"}, opt.Python, "store", "--backend", "memory", "--log-level", "ERROR")
		}, wire(true)},
		{"agl", agl, wire(true)},
		{"ceiling", startCanned, wire(false)},
		{"agl-client", agl, func(url string, _ options) worker { return newClientWorker(url) }},
	}
	var picked []contender
	for _, c := range all {
		if c.name == "python" && opt.Python == "" {
			continue
		}
		if len(opt.Only) == 0 || strings.Contains(","+strings.Join(opt.Only, ",")+",", ","+c.name+",") {
			picked = append(picked, c)
		}
	}
	return picked
}

func startAgl(ctx context.Context, opt options) (*server, error) {
	return startProcess(ctx, nil, opt.Agl, "store", "--db", opt.DB, "--log-level", "warn")
}

// coldStarts returns how long agl's server takes from the start of its process
// to its first answer, each time on its own.
func coldStarts(ctx context.Context, opt options) ([]time.Duration, error) {
	var took []time.Duration
	for range opt.Starts {
		srv, err := startAgl(ctx, opt)
		if err != nil {
			return nil, err
		}
		srv.stop()
		took = append(took, srv.ready)
	}
	return took, nil
}

func run(ctx context.Context, opt options) error {
	results := map[string][]result{}
	list := contenders(opt)
	var starts []time.Duration
	if slices.ContainsFunc(list, func(c contender) bool { return c.name == "agl" }) {
		var err error
		if starts, err = coldStarts(ctx, opt); err != nil {
			return fmt.Errorf("cold start: %w", err)
		}
	}
	for round := range opt.Rounds {
		for _, c := range list {
			r, err := measure(ctx, c, opt)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d: %-10s %8.1f rollouts/s  %9.0f requests/s\n", round+1, c.name, r.rolloutsPerSecond(), r.requestsPerSecond())
			results[c.name] = append(results[c.name], r)
		}
	}
	report(os.Stdout, list, results)
	reportStarts(os.Stdout, starts)
	return nil
}

func measure(ctx context.Context, c contender, opt options) (result, error) {
	srv, err := c.start(ctx)
	if err != nil {
		return result{}, err
	}
	res, err := load(ctx, c.work(srv.url, opt), opt)
	cpu := srv.stop()
	if err != nil {
		return result{}, err
	}
	res.serverCPU = cpu
	return res, nil
}
