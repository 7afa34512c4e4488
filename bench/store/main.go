// Command store measures store servers over HTTP with the work of a training run: simulated runners that dequeue, fetch
// resources, send spans one by one and report, and an algorithm that enqueues, waits, and reads every span back.
//
// One run first starts agl's server a few times to see how soon it answers, then measures several servers one after the
// other with the same load: the Python package's, which keeps everything in memory, agl's over each of its databases and
// under the Go client (batches, long polls), and a net/http server that answers the same calls with canned replies, which is
// the ceiling. Then it compares calls on large databases with the same calls on small ones. Read the ratios, not the
// absolute figures; the targets are printed with them.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl/bench/internal/bench"
)

type options struct {
	Agl     string        `default:"./agl" help:"The agl binary to measure (make build)." placeholder:"FILE"`
	Python  string        `default:".cache/compat-venv/bin/agl" help:"The Python package's agl command (test/compat/venv.sh); empty skips it." placeholder:"FILE"`
	Dir     string        `help:"Where databases are made; the default is a temporary directory. Its disk is part of what is measured." placeholder:"DIR"`
	Runners int           `default:"64" help:"Simulated runners."`
	Time    time.Duration `default:"10s" help:"How long each server is measured, after a warm-up of a fifth of it."`
	Rounds  int           `default:"1" help:"How often all servers are measured; the median counts."`
	Starts  int           `default:"10" help:"Cold starts of agl's server that are measured; 0 skips them."`
	Spans   int           `default:"1000000" help:"Spans in the large database."`
	Queue   int           `default:"200000" help:"Rollouts in the long queue; it is compared with one of a hundredth."`
	Memory  int64         `help:"Measure the memory of a server whose SQLite database holds so many bytes of spans, such as 2000000000." placeholder:"BYTES"`
	Only    []string      `help:"Measure only these servers and comparisons, by their names in the report." placeholder:"NAME"`
}

func (o options) picked(name string) bool {
	return len(o.Only) == 0 || slices.Contains(strings.Split(strings.Join(o.Only, ","), ","), name)
}

func main() {
	bench.Play("store", map[string]func(args []string) error{
		roleCanned: func([]string) error { return serveCanned(nil) }, roleFlushed: serveFlushed, roleInserted: serveInserted,
	})
	bench.Main("store", "Measures store servers over HTTP, one run, as ratios.", run)
}

// coldStarts returns how long agl's server takes from the start of its process
// to its first answer, each time on its own, on its default database.
func coldStarts(ctx context.Context, opt options, dir string) ([]time.Duration, error) {
	var took []time.Duration
	for range opt.Starts {
		srv, err := startAgl(ctx, opt, "--db", "sqlite:"+dir+"/start.db")
		if err != nil {
			return nil, err
		}
		srv.stop()
		took = append(took, srv.process.Ready)
	}
	return took, nil
}

func run(ctx context.Context, opt options) (err error) {
	dir, err := os.MkdirTemp(opt.Dir, "agl-bench-store-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	results := map[string][]result{}
	list := contenders(opt, dir)
	var starts []time.Duration
	if opt.picked("start") {
		if starts, err = coldStarts(ctx, opt, dir); err != nil {
			return fmt.Errorf("cold start: %w", err)
		}
	}
	for round := range opt.Rounds {
		for _, c := range list {
			r, err := measure(ctx, c, opt)
			if err != nil {
				return fmt.Errorf("%s: %w", c.name, err)
			}
			fmt.Fprintf(os.Stderr, "round %d: %-14s %8.1f rollouts/s  %9.0f requests/s\n", round+1, c.name, r.rolloutsPerSecond(), r.requestsPerSecond())
			results[c.name] = append(results[c.name], r)
		}
	}
	medians := report(os.Stdout, list, results)
	reportStarts(os.Stdout, starts)
	compared, err := compare(ctx, opt, dir)
	if err != nil {
		return err
	}
	rss, err := measureMemory(ctx, opt, dir)
	if err != nil {
		return fmt.Errorf("memory: %w", err)
	}
	reportTargets(os.Stdout, medians, results, starts, compared, rss)
	return nil
}

func measure(ctx context.Context, c contender, opt options) (result, error) {
	srv, err := c.start(ctx)
	if err != nil {
		return result{}, err
	}
	measured := opt.wait
	var beside []withTabs
	if c.tabs > 0 {
		measured = func(ctx context.Context, rollouts *atomic.Int64) (err error) {
			beside, err = windows(ctx, srv, c.tabs, opt.Time, rollouts)
			return err
		}
	}
	var res result
	work, err := c.work(srv.urls)
	if err == nil {
		res, err = load(ctx, work, opt, measured)
	}
	cpu := srv.stop()
	if err != nil {
		return result{}, err
	}
	res.serverCPU, res.databaseCPU, res.withTabs = cpu, srv.database, beside
	return res, nil
}
