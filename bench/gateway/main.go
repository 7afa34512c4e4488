// Command gateway compares agl store --gateway with the server of Agent-lightning v1.0,
// by the requests that its trainer, controllers and agents send: rollouts are created and
// polled one by one, and model calls go through the proxy to one model server. agl
// acknowledges a write when it is on disk, in SQLite with full sync; the other server keeps
// everything in memory. The results are ratios within one round, because absolute figures
// depend on the other load of the machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/agl-go/agl/bench/internal/bench"
)

type options struct {
	Agl    string        `default:"./agl" help:"The agl binary (make build)." placeholder:"FILE"`
	Server string        `required:"" help:"The command agl-server of Agent-lightning v1.0 (test/gateway/venv.sh)." placeholder:"FILE"`
	Time   time.Duration `default:"3s" help:"How long each server is measured with each workload in each round."`
	Rounds int           `default:"3" help:"How often everything is measured; medians of the rounds' ratios count."`
	Sync   string        `default:"full" enum:"full,normal" help:"How our server acknowledges: ${enum}."`
	Only   string        `help:"Measure only the workload of this name." placeholder:"NAME"`
}

func main() {
	bench.Play("gateway", map[string]func(args []string) error{"backend": serveBackend})
	bench.Main("gateway", "Measures agl store --gateway beside Agent-lightning v1.0's server, as ratios.", run)
}

const (
	model   = "m"
	pending = 2000
)

// workload is a load of a number of connections, and the targets for agl relative to the
// other server: at least speed times the requests, at most cpu times the CPU time of each,
// and at most p99 times the 99th percentile of the latency. 0 is no target.
type workload struct {
	name        string
	connections int
	call        func(ctx context.Context, s *server, worker, n int) ([]byte, error)
	speed       float64
	cpu, p99    float64
}

func workloads() []workload {
	return []workload{
		{"poll, 1 connection", 1, poll, 0, 0, 0},
		{"poll, 64 connections", 64, poll, 3, 1.0 / 4, 0},
		{"create 256", 1, create, 0, 0, 0},
		{"call, 1 connection", 1, call, 0, 0, 0},
		{"call, 64 connections", 64, call, 12, 1.0 / 12, 1.0 / 10},
	}
}

func run(ctx context.Context, opt options) (err error) {
	dir, err := os.MkdirTemp("", "agl-bench-gateway-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	backend, err := bench.StartRole(ctx, "backend")
	if err != nil {
		return err
	}
	defer backend.Stop()
	ours, err := bench.Start(ctx, "/healthz", nil, opt.Agl, "store", "--gateway", "--gateway-model", model, "--log-level", "error",
		"--db", "sqlite:"+filepath.Join(dir, "agl.db"), "--sync", opt.Sync)
	if err != nil {
		return err
	}
	defer ours.Stop()
	// The shell turns our flags, --host HOST --port PORT, into those of the server.
	theirs, err := bench.Start(ctx, "/healthz", []string{"HYDRA_FULL_ERROR=1"}, "/bin/sh", "-c",
		`cd "$1" && exec "$0" host=$3 port=$5 default_proxy.model_name=`+model, opt.Server, dir)
	if err != nil {
		return err
	}
	defer theirs.Stop()
	servers := []*server{{name: "agl", process: ours}, {name: "agl-server", process: theirs}}
	for _, s := range servers {
		if err := s.prepare(ctx, backend.URL); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	results := make(map[string][][]bench.Calls) // by workload, round and server
	for round := range opt.Rounds {
		for _, w := range workloads() {
			if opt.Only != "" && opt.Only != w.name {
				continue
			}
			one := make([]bench.Calls, len(servers))
			for i, s := range servers {
				if one[i], err = s.drive(ctx, w, opt.Time); err != nil {
					return fmt.Errorf("%s: %s: %w", s.name, w.name, err)
				}
				r := &one[i]
				fmt.Fprintf(os.Stderr, "round %d: %-20s %-10s %7.0f/s %9v CPU each  p50 %v p99 %v\n", round+1, w.name, s.name,
					r.Rate(), r.CPUEach().Round(time.Microsecond), r.Quantile(50).Round(10*time.Microsecond), r.Quantile(99).Round(10*time.Microsecond))
			}
			results[w.name] = append(results[w.name], one)
		}
	}
	for _, s := range servers {
		if err := s.check(ctx); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return report(results)
}

// report prints the medians of the ratios of the rounds.
func report(results map[string][][]bench.Calls) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "workload\tagl, requests/s\tagl-server\tratio\twanted\tCPU of a request, agl\tagl-server\tratio\twanted\tp99, agl\tagl-server\tratio\twanted")
	for _, w := range workloads() {
		rounds := results[w.name]
		if rounds == nil {
			continue
		}
		var rate, cpu, p99 [2][]float64
		var ratios [3][]float64
		for _, r := range rounds {
			for i := range r {
				rate[i] = append(rate[i], r[i].Rate())
				cpu[i] = append(cpu[i], r[i].CPUEach().Seconds())
				p99[i] = append(p99[i], r[i].Quantile(99).Seconds())
			}
			n := len(rate[0]) - 1
			ratios[0] = append(ratios[0], rate[0][n]/rate[1][n])
			ratios[1] = append(ratios[1], cpu[0][n]/cpu[1][n])
			ratios[2] = append(ratios[2], p99[0][n]/p99[1][n])
		}
		wanted := func(sign string, v float64) string {
			if v == 0 {
				return ""
			}
			return fmt.Sprintf("%s %.3g", sign, v)
		}
		ms := func(of []float64) string { return fmt.Sprintf("%.3g ms", bench.Median(of)*1000) }
		fmt.Fprintf(table, "%s\t%.0f\t%.0f\t%.1f\t%s\t%s\t%s\t%.3f\t%s\t%s\t%s\t%.3f\t%s\n", w.name,
			bench.Median(rate[0]), bench.Median(rate[1]), bench.Median(ratios[0]), wanted("≥", w.speed),
			ms(cpu[0]), ms(cpu[1]), bench.Median(ratios[1]), wanted("≤", w.cpu), ms(p99[0]), ms(p99[1]), bench.Median(ratios[2]), wanted("≤", w.p99))
	}
	return table.Flush()
}

// serveBackend is a model server that answers at once, like vLLM with token ids.
func serveBackend([]string) error {
	const reply = `{"id":"chatcmpl-0","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":"Hello! How can I help you?"},` +
		`"logprobs":{"content":[{"token":"Hello","logprob":-0.5,"bytes":[72],"top_logprobs":[]},{"token":"!","logprob":-0.1,"bytes":[33],"top_logprobs":[]}]},` +
		`"finish_reason":"stop","token_ids":[9906,0]}],"usage":{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5},"prompt_token_ids":[1,2,3]}`
	return bench.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, reply) // the caller reports an incomplete reply
	}))
}
