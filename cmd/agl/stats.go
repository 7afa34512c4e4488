package main

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/internal/backoff"
)

type statsCommand struct {
	flags.StoreOrRun

	Watch bool          `short:"w" help:"Then print a line whenever a count has changed, until interrupted."`
	Every time.Duration `default:"1s" help:"How often --watch polls the store."`
	JSON  bool          `help:"Print JSON instead of a table."`
}

func (c *statsCommand) Validate() error {
	if c.Every <= 0 {
		return fmt.Errorf("--every=%s: must be positive", c.Every)
	}
	return nil
}

func (c *statsCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	stats, err := store.Statistics(ctx)
	if err != nil {
		return c.Wrap(err)
	}
	if !c.Watch {
		return c.show(out, &stats)
	}
	return c.watch(ctx, out, store, stats)
}

func (c *statsCommand) show(out *console.Console, s *agl.Statistics) error {
	if c.JSON {
		return out.JSON(s)
	}
	table := console.Table{Headers: []string{"STORE", "COUNT"}, Status: -1, Rows: [][]string{
		{"rollouts", strconv.Itoa(s.TotalRollouts)}, {"attempts", strconv.Itoa(s.TotalAttempts)}, {"spans", strconv.Itoa(s.TotalSpans)},
		{"resources", strconv.Itoa(s.TotalResources)}, {"workers", strconv.Itoa(s.TotalWorkers)},
	}}
	if s.QueueClosed {
		table.Rows = append(table.Rows, []string{"queue", "closed: no rollout is handed out"})
	}
	if s.Memory != nil {
		memory := fmt.Sprintf("%s, evicts above %s", console.Bytes(s.Memory.TotalSpanBytes), console.Bytes(s.Memory.EvictionThresholdBytes))
		table.Rows = append(table.Rows, []string{"span memory", memory})
	}
	if !c.ReadsFolder() { // there is no server
		table.Rows = append(table.Rows, []string{"uptime", console.Duration(s.Uptime.Round(time.Second))})
	}
	table.Rows = append(table.Rows, []string{"kind", console.Dash(s.Name)})
	return table.Print(out)
}

// watch polls, because spans have no events.
func (c *statsCommand) watch(ctx context.Context, out *console.Console, store agl.Store, last agl.Statistics) error {
	if err := c.line(out, &last); err != nil {
		return err
	}
	absence := absence{seen: true}
	for {
		if err := backoff.Sleep(ctx, c.Every); err != nil {
			return err
		}
		stats, err := store.Statistics(ctx)
		if err != nil {
			if err := absence.wait(ctx, out, c.Wrap(err)); err != nil {
				return watchEnded(ctx, err)
			}
			continue
		}
		absence.over()
		if sameCounts(stats, last) {
			continue
		}
		last = stats
		if err := c.line(out, &stats); err != nil {
			return err
		}
	}
}

func sameCounts(a, b agl.Statistics) bool {
	a.Uptime, b.Uptime, a.Memory, b.Memory = 0, 0, nil, nil
	return a == b
}

func (c *statsCommand) line(out *console.Console, s *agl.Statistics) error {
	if c.JSON {
		return out.JSON(s)
	}
	return out.Printf("%s  %d rollouts  %d attempts  %d spans  %d resources  %d workers\n", time.Now().Format(time.TimeOnly),
		s.TotalRollouts, s.TotalAttempts, s.TotalSpans, s.TotalResources, s.TotalWorkers)
}
