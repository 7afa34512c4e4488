package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/agl-go/agl/bench/internal/bench"
)

// target is the target of a measurement.
type target struct {
	what  string
	got   float64
	want  float64
	most  bool // want is the most, not the least
	unit  string
	given bool // it was measured in this run
}

// maxMemory is the target of a server's resident memory, in bytes.
const maxMemory = 200e6

// reportTargets prints what was measured against what has to be reached.
func reportTargets(w io.Writer, medians map[string]result, results map[string][]result, starts []time.Duration, compared []comparison, rss int64) {
	ratio := func(what, name, base string, want float64) target {
		r, ok := medians[name]
		b, haveBase := medians[base]
		t := target{what: what, want: want, unit: "×", given: ok && haveBase && b.rollouts > 0}
		if t.given {
			t.got = r.rolloutsPerSecond() / b.rolloutsPerSecond()
		}
		return t
	}
	tabs := func(what, name string, want float64, most bool, of func(withTabs) float64) target {
		var all []float64
		for _, r := range results[name] {
			for _, pair := range r.withTabs {
				all = append(all, of(pair))
			}
		}
		mean, spread := meanOf(all)
		return target{what: fmt.Sprintf("%s, ten open tabs against none (%d pairs, ± %.3f)", what, len(all), spread), got: mean, want: want, most: most, unit: "×", given: len(all) > 0}
	}
	rollouts, cpu := func(w withTabs) float64 { return w.rollouts }, func(w withTabs) float64 { return w.cpu }
	targets := []target{
		ratio("memory, against Python", nameMemory, namePython, 20),
		ratio("memory, against canned replies", nameMemory, nameCeiling, 0.7),
		ratio("memory with the Go client, against Python", nameMemoryClient, namePython, 60),
		ratio("sqlite --sync full, against Python", nameFull, namePython, 14),
		ratio("sqlite --sync normal, against Python", nameNormal, namePython, 16),
		ratio("sqlite --sync full with the Go client, against Python", nameFullClient, namePython, 40),
		tabs("memory", nameMemoryTabs, 0.97, false, rollouts),
		tabs("memory, CPU for a rollout", nameMemoryTabs, 1.03, true, cpu),
		tabs("sqlite", nameFullTabs, 0.97, false, rollouts),
		tabs("sqlite, CPU for a rollout", nameFullTabs, 1.03, true, cpu),
		ratio("two servers on one PostgreSQL, against Python", namePostgres, namePython, 7),
		ratio("sqlite with many spans, against an empty one", nameLarge, nameFull, 0.8),
		{what: "p99 of the slowest call, memory, against Python", got: worstP99(medians), want: 0.1, most: true, unit: "×", given: worstP99(medians) > 0},
		{what: "memory resident", got: float64(rss) / 1e6, want: maxMemory / 1e6, most: true, unit: " MB", given: rss > 0},
	}
	for _, c := range compared {
		targets = append(targets, target{what: c.name, got: c.ratio(), want: 2, most: true, unit: "×", given: true})
	}
	if len(starts) > 0 {
		middle := bench.Median(starts)
		targets = append(targets, target{what: "cold start", got: 1e3 * middle.Seconds(), want: 1e3 * coldStartTarget.Seconds(), most: true, unit: " ms", given: true})
	}
	fmt.Fprintf(w, "\n%-80s %12s %14s\n", "target", "measured", "wanted")
	for _, t := range targets {
		if !t.given {
			continue
		}
		bound, met := "≥", t.got >= t.want
		if t.most {
			bound, met = "≤", t.got <= t.want
		}
		verdict := map[bool]string{true: "pass", false: "MISS"}[met]
		fmt.Fprintf(w, "%-80s %12s %14s  %s\n", t.what, number(t.got)+t.unit, bound+" "+number(t.want)+t.unit, verdict)
	}
}

// meanOf returns the geometric mean of ratios and its standard error.
func meanOf(ratios []float64) (mean, spread float64) {
	logs := make([]float64, len(ratios))
	for i, r := range ratios {
		logs[i] = math.Log(r)
	}
	mean, spread = bench.MeanError(logs)
	return math.Exp(mean), math.Exp(mean) * spread
}

// worstP99 is the largest ratio of a call's p99 to Python's.
func worstP99(medians map[string]result) float64 {
	worst := 0.0
	for name := range medians[namePython].calls {
		ours, theirs := medians[nameMemory].p99(name), medians[namePython].p99(name)
		if theirs > 0 {
			worst = max(worst, float64(ours)/float64(theirs))
		}
	}
	return worst
}

// number writes three digits or the whole number.
func number(f float64) string {
	s := fmt.Sprintf("%.3g", f)
	if f >= 1000 || strings.Contains(s, "e") {
		return fmt.Sprintf("%.0f", f)
	}
	return s
}
