package main

import (
	"context"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/bench/internal/bench"
)

const (
	// modelCall is the workload whose replies take modelTime, as a short call of a model does.
	modelCall = "model"
	modelTime = 100 * time.Millisecond
	// keyedCalls is how many calls of each kind run at once.
	keyedCalls = 16
)

// reportKeys compares how long calls take without a key, with one, and with one that has a budget,
// which is reserved in the store before the call and settled after it. They take turns.
func (b *suite) reportKeys(ctx context.Context) error {
	base := b.gateways[1]
	base.name = "no key"
	gateways := []gateway{base}
	for _, k := range []struct {
		name   string
		limits access.Limits
	}{{"a key", access.Limits{}}, {"a key with a budget", access.Limits{MaxTokens: 1 << 50, MaxCalls: 1 << 20}}} {
		made, err := b.store.CreateKey(ctx, access.NewKey{Name: k.name, Scopes: access.Live, Limits: k.limits})
		if err != nil {
			return err
		}
		keyed := base
		keyed.name, keyed.target.key = k.name, made.Text
		gateways = append(gateways, keyed)
	}
	ratios50, ratios99 := make([][]float64, len(gateways)), make([][]float64, len(gateways))
	var last []bench.Calls
	for round := range b.opt.Rounds {
		rs, err := b.measure(ctx, gateways, modelCall, keyedCalls)
		if err != nil {
			return err
		}
		for i := range rs {
			ratios50[i] = append(ratios50[i], float64(rs[i].Quantile(50))/float64(rs[0].Quantile(50)))
			ratios99[i] = append(ratios99[i], float64(rs[i].Quantile(99))/float64(rs[0].Quantile(99)))
			fmt.Fprintf(os.Stderr, "round %d: %-20s p50 %v  p99 %v  %d failed\n", round+1, gateways[i].name, rs[i].Quantile(50).Round(10*time.Microsecond), rs[i].Quantile(99).Round(10*time.Microsecond), len(rs[i].Failed))
		}
		last = rs
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "a call of %v, %d at once\tp50\t× no key (≤ 1.03)\tp99\t× no key\tfailed\n", modelTime, keyedCalls)
	for i, g := range gateways {
		fmt.Fprintf(w, "%s\t%v\t%.3f\t%v\t%.3f\t%d\n", g.name, last[i].Quantile(50).Round(10*time.Microsecond), bench.Median(ratios50[i]),
			last[i].Quantile(99).Round(10*time.Microsecond), bench.Median(ratios99[i]), len(last[i].Failed))
	}
	return w.Flush()
}
