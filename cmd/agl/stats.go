package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/agl-go/agl"
)

type statsCommand struct {
	storeFlags
	Watch bool          `short:"w" help:"Go on and print a line whenever a count has changed, until interrupted."`
	Every time.Duration `default:"1s" help:"How often --watch looks."`
	JSON  bool          `help:"Print JSON instead of a table."`
}

// Help is shown below the flags.
func (statsCommand) Help() string { return "Examples:\n  agl stats\n  agl stats --watch --every 5s" }

// Validate is called by kong.
func (c *statsCommand) Validate() error {
	if c.Every <= 0 {
		return fmt.Errorf("--every=%s: must be positive", c.Every)
	}
	return nil
}

func (c *statsCommand) run(ctx context.Context, m *Main) error {
	store, closeStore, err := c.open()
	if err != nil {
		return err
	}
	defer closeStore()
	stats, err := store.Statistics(ctx)
	if err != nil {
		return c.errStore(err)
	}
	if !c.Watch {
		return c.show(m, &stats)
	}
	return c.watch(ctx, m, store, stats)
}

func (c *statsCommand) show(m *Main, s *agl.Statistics) error {
	if c.JSON {
		return m.printJSON(s.AppendJSON(nil))
	}
	listing := grid{headers: []string{"STORE", "COUNT"}, status: -1, rows: [][]string{
		{"rollouts", strconv.Itoa(s.TotalRollouts)}, {"attempts", strconv.Itoa(s.TotalAttempts)}, {"spans", strconv.Itoa(s.TotalSpans)},
		{"resources", strconv.Itoa(s.TotalResources)}, {"workers", strconv.Itoa(s.TotalWorkers)},
	}}
	if s.Memory != nil {
		listing.rows = append(listing.rows, []string{"span memory", spanMemory(s.Memory)})
	}
	listing.rows = append(listing.rows, []string{"uptime", seconds(s.Uptime.Round(time.Second))}, []string{"kind", orDash(s.Name)})
	return listing.print(m)
}

// spanMemory says how full the memory for spans is.
func spanMemory(m *agl.MemoryStatistics) string {
	return fmt.Sprintf("%s, evicts above %s", formatSize(m.TotalSpanBytes), formatSize(m.EvictionThresholdBytes))
}

// watch looks again and again: spans cause no events.
func (c *statsCommand) watch(ctx context.Context, m *Main, store agl.Store, last agl.Statistics) error {
	if err := c.line(m, &last); err != nil {
		return err
	}
	tick := time.NewTicker(c.Every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
		stats, err := store.Statistics(ctx)
		if err != nil {
			return c.watchEnded(ctx, err)
		}
		if sameCounts(stats, last) {
			continue
		}
		last = stats
		if err := c.line(m, &stats); err != nil {
			return err
		}
	}
}

func sameCounts(a, b agl.Statistics) bool {
	a.Uptime, b.Uptime, a.Memory, b.Memory = 0, 0, nil, nil
	return a == b
}

func (c *statsCommand) line(m *Main, s *agl.Statistics) error {
	if c.JSON {
		return m.printJSON(s.AppendJSON(nil))
	}
	return m.printf("%s  %d rollouts  %d attempts  %d spans  %d resources  %d workers\n", time.Now().Format(time.TimeOnly),
		s.TotalRollouts, s.TotalAttempts, s.TotalSpans, s.TotalResources, s.TotalWorkers)
}
