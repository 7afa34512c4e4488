package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"

	"github.com/agl-go/agl/bench/internal/bench"
)

// median returns the run with the median number of rollouts per second.
func median(rs []result) result {
	rs = slices.Clone(rs)
	slices.SortFunc(rs, func(a, b result) int { return int(a.rolloutsPerSecond() - b.rolloutsPerSecond()) })
	return rs[len(rs)/2]
}

// report prints the medians and returns them.
func report(w io.Writer, list []contender, results map[string][]result) map[string]result {
	medians := map[string]result{}
	for name, rs := range results {
		medians[name] = median(rs)
	}
	python, havePython := medians[namePython]
	ceiling := medians[nameCeiling]
	fmt.Fprintf(w, "\n%-14s %12s %12s %24s %10s %12s\n", "server", "rollouts/s", "requests/s", "cpu us/req: server+db+load", "x python", "% ceiling")
	for _, c := range list {
		r := medians[c.name]
		times, share := "-", "-"
		if python.rollouts > 0 {
			times = fmt.Sprintf("%.1f", r.rolloutsPerSecond()/python.rolloutsPerSecond())
		}
		if ceiling.rollouts > 0 {
			share = fmt.Sprintf("%.0f", 100*r.rolloutsPerSecond()/ceiling.rolloutsPerSecond())
		}
		cpu := "-"
		if n := float64(r.requests()); n > 0 {
			const withWarmUp = 1.2 // it lasts a fifth of the measurement
			perRequest := func(cpu time.Duration) float64 { return float64(cpu.Microseconds()) / n }
			cpu = fmt.Sprintf("%.0f + %.0f + %.0f", perRequest(r.serverCPU)/withWarmUp, perRequest(r.databaseCPU)/withWarmUp, perRequest(r.loadCPU))
		}
		fmt.Fprintf(w, "%-14s %12.1f %12.0f %24s %10s %12s\n", c.name, r.rolloutsPerSecond(), r.requestsPerSecond(), cpu, times, share)
	}
	calls := map[string]bool{}
	for _, r := range medians {
		for name := range r.calls {
			calls[name] = true
		}
	}
	fmt.Fprintf(w, "\n%-17s", "p99 by call")
	for _, c := range list {
		fmt.Fprintf(w, " %14s", c.name)
	}
	if havePython {
		fmt.Fprintf(w, " %14s", "agl / python")
	}
	fmt.Fprintln(w)
	for _, name := range slices.Sorted(maps.Keys(calls)) {
		fmt.Fprintf(w, "%-17s", name)
		for _, c := range list {
			d := medians[c.name].p99(name)
			if d == 0 {
				fmt.Fprintf(w, " %14s", "-")
				continue
			}
			fmt.Fprintf(w, " %14s", d.Round(10*time.Microsecond))
		}
		if m, p := medians[nameMemory].p99(name), python.p99(name); m > 0 && p > 0 {
			fmt.Fprintf(w, " %14.3f", float64(m)/float64(p))
		} else if havePython {
			fmt.Fprintf(w, " %14s", "-")
		}
		fmt.Fprintln(w)
	}
	return medians
}

// coldStartTarget is the target of the time of a start.
const coldStartTarget = 100 * time.Millisecond

func reportStarts(w io.Writer, took []time.Duration) {
	if len(took) == 0 {
		return
	}
	middle, most := bench.Median(took), slices.Max(took)
	ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
	fmt.Fprintf(w, "\ncold start of agl (process start to first answer, %d starts): median %.1f ms, max %.1f ms; %.2f and %.2f of the target of %.0f ms\n",
		len(took), ms(middle), ms(most), float64(middle)/float64(coldStartTarget), float64(most)/float64(coldStartTarget), ms(coldStartTarget))
}
