// Command proxy compares LLM gateways in front of the same model server: httputil.ReverseProxy, which only relays, agl's proxy
// without and with records of every call in a real store process, and LiteLLM's. Each is a process of its own. The result is the
// CPU time of a call in it, as a ratio within one round, because absolute figures depend on the other load of the machine.
package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/rest/client"
)

type options struct {
	Agl         string        `default:"./agl" help:"The agl binary whose store takes the records (make build)." placeholder:"FILE"`
	LiteLLM     string        `name:"litellm" help:"LiteLLM's command (bench/proxy/litellm.sh); none skips it." placeholder:"FILE"`
	Connections int           `default:"64" help:"Calls at once."`
	Time        time.Duration `default:"4s" help:"How long each gateway is measured with each workload in each round."`
	Rounds      int           `default:"3" help:"How often everything is measured; medians of the rounds' ratios count."`
	Streams     int           `default:"1000" help:"Streams that are open when memory is read."`
	Spool       bool          `help:"With a spool directory, too."`
	Only        []string      `enum:"memory,small,39KB,stream,first-byte,keys" default:"memory,small,39KB,stream,first-byte,keys" help:"Measure only these: ${enum}." placeholder:"NAME"`
	Profile     string        `help:"Write CPU profiles of the recording gateway there, one for each workload." placeholder:"DIR"`
}

func main() {
	bench.Play("proxy", map[string]func(args []string) error{
		"backend": serveBackend, "agl": serveAgl, "reverse": func(args []string) error { return bench.ServeReverse(args[0]) },
	})
	bench.Main("proxy", "Measures LLM gateways before one model server, as ratios.", run)
}

// goals bounds the CPU time of a recorded call, by workload, as a multiple of ReverseProxy's.
var goals = map[string]float64{"small": 1.5, "39KB": 1.6, "stream": 1.7}

// recorded is the name of the gateway that has targets.
const recorded = "agl, recorded"

// gateway is one of the gateways that are compared.
type gateway struct {
	name    string
	process *bench.Process
	target  target
	left    *leftovers // nil for gateways that record nothing
	slow    bool       // its calls take seconds
}

// suite has the processes of a run.
type suite struct {
	opt       options
	dir       string
	processes []*bench.Process
	backend   *bench.Process
	gateways  []gateway
	store     *client.Client // of the recording gateway's store; nil before it runs
}

func plain(int) string { return "/v1/chat/completions" }

func run(ctx context.Context, opt options) (err error) {
	b := &suite{opt: opt}
	if b.dir, err = os.MkdirTemp("", "agl-bench-proxy-"); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(b.dir)) }()
	defer func() {
		if b.store != nil {
			err = errors.Join(err, b.store.Close())
		}
		for _, p := range b.processes {
			p.Stop()
		}
	}()
	if err := b.start(ctx); err != nil {
		return err
	}
	// Memory is measured first, before the loads.
	if slices.Contains(opt.Only, "memory") {
		if err := b.reportMemory(ctx); err != nil {
			return err
		}
	}
	results := make(map[string]map[string][]bench.Calls) // by workload and gateway
	workloads := slices.DeleteFunc(slices.Clone(opt.Only), func(name string) bool { return goals[name] == 0 })
	for round := range opt.Rounds {
		for _, workload := range workloads {
			if results[workload] == nil {
				results[workload] = make(map[string][]bench.Calls)
			}
			rs, err := b.measure(ctx, b.gateways, workload, opt.Connections)
			if err != nil {
				return err
			}
			for i, r := range rs {
				g := b.gateways[i]
				results[workload][g.name] = append(results[workload][g.name], r)
				fmt.Fprintf(os.Stderr, "round %d: %-7s %-22s %8.0f calls/s %8v CPU/call  p99 %v  %d failed\n", round+1, workload, g.name,
					r.Rate(), r.CPUEach().Round(100*time.Nanosecond), r.Quantile(99).Round(10*time.Microsecond), len(r.Failed))
			}
		}
	}
	if len(workloads) > 0 {
		b.report(results, workloads)
	}
	if b.opt.Profile != "" {
		for _, workload := range workloads {
			if err := b.profile(ctx, workload); err != nil {
				return err
			}
		}
	}
	if slices.Contains(opt.Only, "first-byte") {
		if err := b.reportFirstByte(ctx); err != nil {
			return err
		}
	}
	if slices.Contains(opt.Only, "keys") {
		return b.reportKeys(ctx)
	}
	return nil
}

// start starts the processes.
func (b *suite) start(ctx context.Context) (err error) {
	if b.backend, err = b.own(bench.StartRole(ctx, "backend")); err != nil {
		return err
	}
	reverse, err := b.own(bench.StartRole(ctx, "reverse", b.backend.URL))
	if err != nil {
		return err
	}
	store, err := b.own(bench.Start(ctx, "/v1/agl/health", nil, b.opt.Agl, "store", "--db", "memory:", "--log-level", "error"))
	if err != nil {
		return err
	}
	spool := ""
	if b.opt.Spool {
		spool = filepath.Join(b.dir, "spool")
	}
	ours, err := b.own(bench.StartRole(ctx, "agl", b.backend.URL, store.URL, spool))
	if err != nil {
		return err
	}
	if b.store, err = client.New(client.Config{URL: store.URL}); err != nil {
		return err
	}
	left := &leftovers{store: b.store, proxy: &proxy.Client{BaseURL: ours.URL}, rollouts: make([]agl.AttemptedRollout, b.opt.Connections)}
	if err := left.begin(ctx); err != nil {
		return err
	}
	b.gateways = []gateway{
		{"ReverseProxy", reverse, target{base: reverse.URL, path: plain}, nil, false},
		{"agl, no record", ours, target{base: ours.URL, path: plain}, nil, false},
		{recorded, ours, target{base: ours.URL, path: left.path}, left, false},
	}
	if b.opt.LiteLLM == "" {
		return nil
	}
	config := filepath.Join(b.dir, "litellm.yaml")
	text := "model_list:\n- model_name: m\n  litellm_params: {model: hosted_vllm/m, api_base: " + b.backend.URL + "/v1, api_key: none}\n"
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		return err
	}
	lite, err := b.own(bench.Start(ctx, "/health/liveliness", []string{"LITELLM_LOCAL_MODEL_COST_MAP=True", "DO_NOT_TRACK=1", "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY=true"}, b.opt.LiteLLM, "--config", config, "--num_workers", "1", "--telemetry", "False"))
	if err != nil {
		return err
	}
	b.gateways = append(b.gateways, gateway{"LiteLLM", lite, target{base: lite.URL, path: plain, key: "none"}, nil, true})
	return nil
}

// own stops a process at the end of the run.
func (b *suite) own(p *bench.Process, err error) (*bench.Process, error) {
	if err == nil {
		b.processes = append(b.processes, p)
	}
	return p, err
}

// leftovers are the records of a load in the store. Each worker has an attempt of its own.
type leftovers struct {
	store    *client.Client
	proxy    *proxy.Client
	rollouts []agl.AttemptedRollout // by worker
}

func (l *leftovers) path(worker int) string {
	a := l.rollouts[worker%len(l.rollouts)]
	return "/rollout/" + a.RolloutID + "/attempt/" + a.Attempt.AttemptID + "/v1/chat/completions"
}

func (l *leftovers) begin(ctx context.Context) (err error) {
	for i := range l.rollouts {
		if l.rollouts[i], err = l.store.StartRollout(ctx, agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{Input: []byte("1")}}); err != nil {
			return err
		}
	}
	return nil
}

// flush waits until the calls so far are stored.
func (g *gateway) flush(ctx context.Context) error {
	if g.left == nil {
		return nil
	}
	return g.left.proxy.Flush(ctx, nil)
}

// forget deletes the records so far. If the store only grew, the benchmark would measure the allocation of memory, which on
// a virtual machine takes several times as long as everything else.
func (g *gateway) forget(ctx context.Context) error {
	if g.left == nil {
		return nil
	}
	for _, a := range g.left.rollouts {
		if _, err := g.left.store.UpdateAttempt(ctx, agl.UpdateAttemptParams{RolloutID: a.RolloutID, AttemptID: a.Attempt.AttemptID, Status: new(agl.AttemptSucceeded)}); err != nil {
			return err
		}
		if err := g.left.store.DeleteRollout(ctx, agl.DeleteRolloutParams{RolloutID: a.RolloutID}); err != nil {
			return err
		}
	}
	return g.left.begin(ctx)
}

// turns is the number of turns of each gateway in a round. Other load on the machine
// changes from second to second, and the result is a ratio.
const turns = 8

// measure drives each gateway for the time of a round, in turns, every second turn in reverse order. A slow gateway has
// only one turn, of the whole time.
func (b *suite) measure(ctx context.Context, gateways []gateway, workload string, connections int) (results []bench.Calls, err error) {
	var spells []*spell
	for i := range gateways {
		s := &spell{gateway: &gateways[i], transport: newTransport(connections), workload: workload, connections: connections}
		defer s.transport.CloseIdleConnections()
		if err := s.run(ctx, b.opt.Time/8); err != nil { // a warm-up, of which only what failed counts
			return nil, err
		}
		s.Calls = bench.Calls{Failed: s.Failed}
		spells = append(spells, s)
	}
	for turn := range turns {
		order := slices.Clone(spells)
		if turn%2 == 1 {
			slices.Reverse(order)
		}
		for _, s := range order {
			if s.slow && turn > 0 {
				continue
			}
			span := b.opt.Time / turns
			if s.slow {
				span = b.opt.Time
			}
			if err := s.run(ctx, span); err != nil {
				return nil, err
			}
		}
	}
	for _, s := range spells {
		results = append(results, s.Calls)
	}
	return results, nil
}

// spell is a gateway under a load that runs in turns.
type spell struct {
	*gateway
	bench.Calls

	transport   *http.Transport
	workload    string
	connections int
}

// run drives the gateway for a time and waits until its records are stored.
func (s *spell) run(ctx context.Context, span time.Duration) error {
	before, err := s.process.CPU()
	if err != nil {
		return err
	}
	r, err := drive(ctx, s.transport, s.target, s.workload, s.connections, span)
	if err == nil {
		err = s.flush(ctx)
	}
	if err != nil {
		return fmt.Errorf("%s, %s: %w", s.name, s.workload, err)
	}
	after, err := s.process.CPU()
	if err != nil {
		return err
	}
	r.CPU = after - before
	s.Add(r)
	return s.forget(ctx)
}

// profile drives the gateway that records for the time of a round, in turns as it is measured, and writes its CPU profile.
func (b *suite) profile(ctx context.Context, workload string) error {
	s := &spell{gateway: &b.gateways[2], transport: newTransport(b.opt.Connections), workload: workload, connections: b.opt.Connections}
	defer s.transport.CloseIdleConnections()
	done := make(chan error, 1)
	go func() { done <- profile(ctx, s.process, filepath.Join(b.opt.Profile, workload+".pprof"), b.opt.Time) }()
	var err error
	for turn := 0; turn < turns && err == nil; turn++ {
		err = s.run(ctx, b.opt.Time/turns)
	}
	return errors.Join(err, <-done)
}

func (b *suite) report(results map[string]map[string][]bench.Calls, workloads []string) {
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "workload\tgateway\tCPU/call\t× ReverseProxy\tp99\t× ReverseProxy\tcalls/CPU second\tfailed")
	for _, workload := range workloads {
		base := results[workload]["ReverseProxy"]
		for _, g := range b.gateways {
			var cpu, cpuRatio, p99, p99Ratio []float64
			calls, failed := 0, 0
			for i, r := range results[workload][g.name] {
				calls, failed = calls+len(r.Times), failed+len(r.Failed)
				cpu = append(cpu, float64(r.CPUEach())/1e3)
				cpuRatio = append(cpuRatio, float64(r.CPUEach())/float64(base[i].CPUEach()))
				p99 = append(p99, float64(r.Quantile(99))/1e6)
				p99Ratio = append(p99Ratio, float64(r.Quantile(99))/float64(base[i].Quantile(99)))
			}
			goal := ""
			if g.name == recorded {
				goal = fmt.Sprintf(" (≤ %.1f)", goals[workload])
			}
			fmt.Fprintf(w, "%s\t%s\t%.0f µs\t%.2f%s\t%.1f ms\t%.2f\t%.0f\t%d of %d\n",
				workload, g.name, bench.Median(cpu), bench.Median(cpuRatio), goal, bench.Median(p99), bench.Median(p99Ratio), 1e6/bench.Median(cpu), failed, calls+failed)
		}
	}
	_ = w.Flush()
	for _, workload := range workloads {
		for _, g := range b.gateways {
			for i, r := range results[workload][g.name] {
				if len(r.Failed) > 0 {
					fmt.Printf("%s, %s, round %d: %d calls failed, one of them: %v\n", workload, g.name, i+1, len(r.Failed), r.Failed[0])
				}
			}
		}
	}
	if b.opt.LiteLLM != "" {
		for _, workload := range workloads {
			var ratio []float64
			for i, r := range results[workload]["LiteLLM"] {
				ours := results[workload][recorded][i]
				ratio = append(ratio, float64(r.CPUEach())/float64(ours.CPUEach()))
			}
			fmt.Printf("%s: %.0f × LiteLLM's calls per CPU second (≥ 40)\n", workload, bench.Median(ratio))
		}
	}
}

// reportFirstByte compares the times to the first byte on one connection, of calls without and with a pause between them.
// After a pause of 5 ms the record of the previous call is being written, see proxy.Config.WriteDelay. The gateways take
// turns, so that other load on the machine is the same for all.
func (b *suite) reportFirstByte(ctx context.Context) error {
	const (
		turns = 20
		calls = 100
	)
	servers := []string{"model server"}
	targets := []target{{base: b.backend.URL, path: plain}}
	for _, g := range b.gateways[:3] {
		servers, targets = append(servers, g.name), append(targets, g.target)
	}
	for _, pause := range []time.Duration{0, 5 * time.Millisecond, 20 * time.Millisecond} {
		times := make([][]time.Duration, len(targets))
		for range turns {
			for i, to := range targets {
				took, err := firstByte(ctx, to, calls, pause)
				if err != nil {
					return err
				}
				times[i] = append(times[i], took...)
				if i == 0 {
					continue
				}
				if err := b.gateways[i-1].flush(ctx); err != nil {
					return err
				}
			}
		}
		fmt.Printf("first byte, one connection, %s between calls:", pause)
		for i, took := range times {
			fmt.Printf("  %s %v", servers[i], bench.Median(took).Round(time.Microsecond))
		}
		added := bench.Median(times[3]) - bench.Median(times[1])
		fmt.Printf("; recorded over ReverseProxy %v (≤ 150µs)\n", added.Round(time.Microsecond))
	}
	return nil
}

// reportMemory reads agl's memory with many streams open.
func (b *suite) reportMemory(ctx context.Context) error {
	g := b.gateways[2]
	before, err := g.process.Memory("VmRSS")
	if err != nil {
		return err
	}
	closeAll, err := open(ctx, g.target, b.opt.Streams)
	defer closeAll()
	if err != nil {
		return err
	}
	after, err := g.process.Memory("VmRSS")
	fmt.Printf("memory with %d streams open: %d MB, %d MB before (≤ 100 MB)\n", b.opt.Streams, after>>20, before>>20)
	return err
}
