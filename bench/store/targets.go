package main

import (
	"fmt"
	"io"
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

func (t target) met() bool {
	if t.most {
		return t.got <= t.want
	}
	return t.got >= t.want
}

// maxMemory is the target of a server's resident memory, in bytes.
const maxMemory = 200e6

// reportTargets prints what was measured against what has to be reached.
func reportTargets(w io.Writer, medians map[string]result, starts []time.Duration, compared []comparison, rss int64) {
	ratio := func(what, name, base string, want float64) target {
		r, ok := medians[name]
		b, haveBase := medians[base]
		t := target{what: what, want: want, unit: "×", given: ok && haveBase && b.rollouts > 0}
		if t.given {
			t.got = r.rolloutsPerSecond() / b.rolloutsPerSecond()
		}
		return t
	}
	targets := []target{
		ratio("memory, against Python", nameMemory, namePython, 20),
		ratio("memory, against canned replies", nameMemory, nameCeiling, 0.7),
		ratio("memory with the Go client, against Python", nameMemoryClient, namePython, 60),
		ratio("sqlite --sync full, against Python", nameFull, namePython, 14),
		ratio("sqlite --sync normal, against Python", nameNormal, namePython, 16),
		ratio("sqlite --sync full with the Go client, against Python", nameFullClient, namePython, 40),
		ratio("memory with ten tabs of the dashboard, against none", nameMemoryTabs, nameMemory, 0.97),
		ratio("sqlite with ten tabs of the dashboard, against none", nameFullTabs, nameFull, 0.97),
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
	fmt.Fprintf(w, "\n%-56s %12s %14s\n", "target", "measured", "wanted")
	for _, t := range targets {
		if !t.given {
			continue
		}
		bound, verdict := "≥", "pass"
		if t.most {
			bound = "≤"
		}
		if !t.met() {
			verdict = "MISS"
		}
		fmt.Fprintf(w, "%-56s %12s %14s  %s\n", t.what, number(t.got)+t.unit, bound+" "+number(t.want)+t.unit, verdict)
	}
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
