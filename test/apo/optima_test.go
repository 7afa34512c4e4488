package apo

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/apo/apotest"
	"github.com/agl-go/agl/runner"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/store/memory"
)

var seeds = flag.Int("seeds", 100, "searches of each world")

// trial is a way to search a world.
type trial struct {
	name  string
	world apotest.World
	// blind does not try the seed before the first round, so that a leader that
	// only seems better gets as far as the final comparison.
	blind bool
}

func trials() []trial {
	var out []trial
	for _, w := range apotest.Worlds() {
		out = append(out, trial{w.Name, w, false})
		if !w.Improvable() {
			out = append(out, trial{w.Name + ", blind", w, true})
		}
	}
	return out
}

// tally counts the results of a trial's searches.
type tally struct {
	found    int // searches that found the best prompts, and reported a gain if there is one
	compared int // searches that ended with a comparison with the seed, which gives an interval
	covered  int // of these, those whose interval contains the true gain
	improved int // searches that reported a gain
	false    int // of these, those without a true gain
	calls    int
}

func (c *tally) add(w apotest.World, r apo.Report) {
	if w.Optimal(r.Best.Prompts) && r.Improved == w.Improvable() {
		c.found++
	}
	c.calls += r.Spent.Calls
	if r.Improved {
		c.improved++
	}
	for _, candidate := range r.Candidates {
		if candidate.ResourcesID != r.Compared {
			continue
		}
		c.compared++
		gain := w.Gain(candidate.Prompts)
		if r.Gain.Low <= gain && gain <= r.Gain.High {
			c.covered++
		}
		if r.Improved && gain <= 0 {
			c.false++
		}
	}
}

// TestKnownOptima requires that at least 90 % of the seeds find the known optima, that as many
// intervals cover the true gain, and that where no edit helps, at least 95 % report no gain.
func TestKnownOptima(t *testing.T) {
	var table bytes.Buffer
	rows := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "world\tfound\tintervals\tcover the gain\tsaid to be better\tand is not\tmodel calls each")
	for _, tr := range trials() {
		t.Run(tr.name, func(t *testing.T) {
			c := searches(t, tr)
			fmt.Fprintf(rows, "%s\t%d of %d\t%d\t%d\t%d\t%d\t%d\n",
				tr.name, c.found, *seeds, c.compared, c.covered, c.improved, c.false, c.calls / *seeds)
			share := func(n int, of float64) int { return int(math.Ceil(of * float64(n))) }
			if tr.world.Improvable() {
				want := share(*seeds, 0.9)
				if c.found < want {
					t.Errorf("the optimum was found by %d of %d seeds, want at least %d", c.found, *seeds, want)
				}
				if c.covered < want {
					t.Errorf("%d of %d reported intervals cover the true gain, want at least %d", c.covered, *seeds, want)
				}
				return
			}
			if most := *seeds - share(*seeds, 0.95); c.improved > most {
				t.Errorf("a gain was reported by %d of %d seeds, want at most %d", c.improved, *seeds, most)
			}
			if c.covered < share(c.compared, 0.9) {
				t.Errorf("%d of %d reported intervals cover the true gain, want at least 90 %%", c.covered, c.compared)
			}
			if tr.blind && c.compared < *seeds/2 {
				t.Errorf("%d of %d searches came to a comparison, want at least half of them: the others prove nothing", c.compared, *seeds)
			}
		})
	}
	if err := rows.Flush(); err != nil {
		t.Fatal(err)
	}
	t.Logf("\n%s", table.String())
}

// searches runs all seeds of a trial, a few at a time.
func searches(t *testing.T, tr trial) *tally {
	t.Helper()
	reports := make([]apo.Report, *seeds)
	var wg sync.WaitGroup
	const parts = 4
	for part := range parts {
		wg.Go(func() {
			for seed := part; seed < *seeds; seed += parts {
				cfg := tr.world.Config(uint64(seed))
				cfg.SkipInitialValidation = tr.blind
				var err error
				if reports[seed], err = search(t.Context(), tr.world, cfg); err != nil {
					t.Errorf("seed %d: %v", seed, err)
				}
			}
		})
	}
	wg.Wait()
	c := &tally{}
	for _, r := range reports {
		c.add(tr.world, r)
	}
	return c
}

// search runs a search in a store of its own, with real runners.
func search(ctx context.Context, w apotest.World, cfg apo.Config) (r apo.Report, err error) {
	driver, err := memory.New(memory.Config{CapacityBytes: 1 << 30})
	if err != nil {
		return r, err
	}
	st, err := store.New(ctx, store.Config{Driver: driver})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, st.Close(ctx)) }()
	const workers = 4
	agents, err := runner.New(runner.Config{Store: st, Agent: agl.AgentFunc(w.Agent), Workers: workers, HeartbeatInterval: -1})
	if err != nil {
		return r, err
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- agents.Run(serving) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	a, err := apo.New(cfg)
	if err != nil {
		return r, err
	}
	err = a.Run(ctx, w.Input(st))
	return a.Report(), err
}
