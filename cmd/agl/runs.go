package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
)

type runsCommand struct {
	List runsListCommand `cmd:"" default:"withargs" help:"List runs, those that started last first."`
	Show runsShowCommand `cmd:"" help:"Show the metrics of a run: the first, the last, the lowest and the highest value of each."`
}

type runsListCommand struct {
	listFlags `set:"limit=100"`
}

func (c *runsListCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	runs, err := runsOf(store)
	if err != nil {
		return c.Wrap(err)
	}
	return (&listing[agl.Run, *agl.Run]{
		flags:   c.listFlags,
		headers: []string{"RUN", "STATUS", "NAME", "ALGORITHM", "STEP", "STARTED", "UPDATED", "ERROR"},
		status:  1,
		drop:    []string{"UPDATED", "STARTED", "ERROR"},
		row: plainRow(func(r *agl.Run) []string {
			return []string{
				console.Dash(r.RunID), runStatus(r, time.Now()), console.Dash(r.Name), console.Dash(r.Algorithm), stepText(r.Step),
				console.Time(agl.Some(r.StartTime)), console.Time(agl.Some(r.UpdateTime)), console.Dash(r.Error),
			}
		}),
		query: func(ctx context.Context, p agl.Paging) (agl.Page[agl.Run], error) {
			return runs.QueryRuns(ctx, agl.QueryRunsParams{Limit: p.Limit, Offset: p.Offset})
		},
	}).show(ctx, out)
}

func runsOf(store agl.Store) (agl.Runs, error) {
	runs := agl.RunsOf(store)
	if runs == nil {
		return nil, agl.Errorf(agl.CodeUnimplemented, "the store keeps no runs")
	}
	return runs, nil
}

// silentAfter is how long a run may report nothing before its status says so. Steps of most runs
// take less.
const silentAfter = 10 * time.Minute

// runStatus is the status of a run. A process that was killed could not end its run, so one that is running and has been
// silent says for how long.
func runStatus(r *agl.Run, now time.Time) string {
	silent := now.Sub(r.UpdateTime.Time())
	if r.Status != agl.RunRunning || silent < silentAfter {
		return string(r.Status)
	}
	const day = 24 * time.Hour
	text := fmt.Sprintf("%d min", silent/time.Minute)
	switch {
	case silent >= day:
		text = fmt.Sprintf("%d d", silent/day)
	case silent >= time.Hour:
		text = fmt.Sprintf("%d h", silent/time.Hour)
	}
	return fmt.Sprintf("%s, not heard from for %s", r.Status, text)
}

func stepText(step agl.Null[int]) string {
	if !step.Valid {
		return "-"
	}
	return strconv.Itoa(step.V)
}

type runsShowCommand struct {
	ID string `arg:"" optional:"" name:"run" default:"latest" help:"Id of the run; ${default} is the one that started last."`

	flags.StoreOrRun

	JSON bool `help:"Print JSON instead: the run, and then a line for each step."`
}

// Validate puts the arguments in order.
func (c *runsShowCommand) Validate() error { return c.Order(&c.ID, "latest", "run's id") }

func (c *runsShowCommand) use(ctx context.Context, out *console.Console, store agl.Store) error {
	runs, err := runsOf(store)
	if err != nil {
		return c.Wrap(err)
	}
	run, err := c.find(ctx, runs)
	if err != nil {
		return c.Wrap(err)
	}
	series := map[string]*metricSummary{}
	if c.JSON {
		err = out.JSON(&run)
	} else {
		err = out.Printf("%s  %s  %s %s  step %s  started %s\n", console.Printable(run.RunID), runStatus(&run, time.Now()), console.Dash(run.Algorithm),
			console.Dash(run.Name), stepText(run.Step), console.Time(agl.Some(run.StartTime)))
	}
	if err == nil && run.Error != "" && !c.JSON {
		err = out.Printf("%s\n", console.Printable(run.Error))
	}
	if err != nil {
		return err
	}
	query := func(ctx context.Context, p agl.Paging) (agl.Page[agl.RunMetrics], error) {
		return runs.QueryRunMetrics(ctx, agl.QueryRunMetricsParams{RunID: run.RunID, Limit: p.Limit, Offset: p.Offset})
	}
	for step, err := range agl.Pages(ctx, agl.Paging{}, pageSize, query) {
		if err != nil {
			return c.Wrap(err)
		}
		if c.JSON {
			if err := out.JSON(step); err != nil {
				return err
			}
			continue
		}
		for name, value := range step.Values {
			if series[name] == nil {
				series[name] = &metricSummary{first: value, low: value, high: value}
			}
			series[name].add(value)
		}
	}
	if c.JSON {
		return nil
	}
	table := console.Table{Headers: []string{"METRIC", "FIRST", "LAST", "LOWEST", "HIGHEST", "STEPS"}, Status: -1, Drop: []string{"STEPS", "LOWEST", "HIGHEST", "FIRST"}}
	for _, name := range slices.Sorted(maps.Keys(series)) {
		s := series[name]
		table.Rows = append(table.Rows, []string{console.Dash(name), metricText(s.first), metricText(s.last), metricText(s.low), metricText(s.high), strconv.Itoa(s.steps)})
	}
	return table.Print(out)
}

// find returns the run of the flags.
func (c *runsShowCommand) find(ctx context.Context, runs agl.Runs) (agl.Run, error) {
	if c.ID != "latest" {
		return runs.GetRun(ctx, c.ID)
	}
	page, err := runs.QueryRuns(ctx, agl.QueryRunsParams{Limit: 1})
	if err == nil && len(page.Items) == 0 {
		err = agl.Errorf(agl.CodeNotFound, "the store has no runs")
	}
	if err != nil {
		return agl.Run{}, err
	}
	return page.Items[0], nil
}

// metricSummary is what a table says of the values of a metric.
type metricSummary struct {
	first, last, low, high float64
	steps                  int
}

func (s *metricSummary) add(value float64) {
	s.last, s.low, s.high = value, min(s.low, value), max(s.high, value)
	s.steps++
}

func metricText(value float64) string { return fmt.Sprintf("%.6g", value) }
