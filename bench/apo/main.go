// Command apo compares prompt tuning with the Python package's APO class: the same task, whose best prompts are known, the
// same settings, as many runners, and the same scripted models behind one HTTP server with the same latency. It prints the
// worth of the prompts that were found, the number of model calls, and the ratio of the times. It fails if agl's prompts are
// worse by more than the statistical error of so few seeds, if it needs more calls, or if it is not three times as fast.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/agl-go/agl/algorithm/apo/apotest"
	"github.com/agl-go/agl/bench/internal/bench"
)

type options struct {
	Agl           string        `default:"./agl" help:"The agl binary whose store is used (make build)." placeholder:"FILE"`
	Venv          string        `default:".cache/compat-venv" help:"Where the Python package is (test/compat/venv.sh)." placeholder:"DIR"`
	Script        string        `default:"bench/apo/class.py" help:"The Python side." placeholder:"FILE"`
	World         []string      `default:"local optimum" help:"The tasks; of those with one template." placeholder:"NAME"`
	Seeds         int           `default:"3" help:"Searches of each."`
	Latency       time.Duration `default:"100ms" help:"Of a model call."`
	Runners       int           `default:"4" help:"Rollouts at once."`
	Beam          int           `default:"3" help:"Beam width."`
	Branch        int           `default:"3" help:"Edits of each parent."`
	Rounds        int           `default:"4" help:"Rounds."`
	GradientBatch int           `default:"2" help:"Training tasks behind a critique."`
	ValBatch      int           `default:"8" help:"Validation tasks behind a comparison."`
	Train         int           `default:"12" help:"Training tasks."`
	Val           int           `default:"16" help:"Validation tasks."`
}

// comparison is the runs of one world.
type comparison struct {
	opt    options
	world  apotest.World
	models *models
}

func main() {
	bench.Main("apo", "Compares prompt tuning with the Python package's APO class.", run)
}

func run(ctx context.Context, opt options) error {
	var missed []error
	for _, name := range opt.World {
		i := slices.IndexFunc(apotest.Worlds(), func(w apotest.World) bool { return w.Name == name && len(w.Seed) == 1 })
		if i < 0 {
			return fmt.Errorf("--world: there is no %q with one template", name)
		}
		if err := compare(ctx, opt, apotest.Worlds()[i]); err != nil {
			missed = append(missed, fmt.Errorf("%s: %w", name, err))
		}
	}
	return errors.Join(missed...)
}

// compare runs both sides with every seed, one after the other.
func compare(ctx context.Context, opt options, w apotest.World) error {
	b := &comparison{opt: opt, world: w, models: serveModels(w, opt.Latency)}
	defer b.models.server.Close()
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintf(table, "%s\tseed\tworth (best %.2f, at first %.2f)\tcalls: critic, editor, agent\tseconds\n", w.Name, w.Best, b.worth(w.Seed[0].Prompt))
	sides := []*side{{name: "Python", search: b.python}, {name: "ours", search: b.ours}}
	for seed := range opt.Seeds {
		for _, side := range sides {
			b.models.begin(uint64(seed))
			r, err := side.search(ctx, seed)
			if err != nil {
				return fmt.Errorf("%s, seed %d: %w", side.name, seed, err)
			}
			calls, total := b.models.counts()
			worth := b.worth(r.prompt)
			side.worth, side.seconds, side.calls = append(side.worth, worth), append(side.seconds, r.seconds), side.calls+total
			fmt.Fprintf(table, "%s\t%d\t%.2f\t%d: %d, %d, %d\t%.1f\n", side.name, seed, worth, total, calls[critic], calls[editor], calls[agent], r.seconds)
			fmt.Fprintf(os.Stderr, "%s, %s, seed %d: worth %.2f after %.1f s\n", w.Name, side.name, seed, worth, r.seconds)
		}
	}
	theirs, ours := sides[0], sides[1]
	speedUps := slices.Clone(theirs.seconds)
	for i := range speedUps {
		speedUps[i] /= ours.seconds[i]
	}
	ratio := bench.Median(speedUps)
	fmt.Fprintf(table, "mean\t\tPython %.2f, ours %.2f\tPython %d, ours %d in all\tours %.1f × as fast (median)\n", bench.Mean(theirs.worth), bench.Mean(ours.worth), theirs.calls, ours.calls, ratio)
	if err := table.Flush(); err != nil {
		return err
	}
	return verdict(theirs, ours, ratio)
}

// side is one of the two programs, with the results of its searches by seed.
type side struct {
	name           string
	search         func(context.Context, int) (result, error)
	worth, seconds []float64
	calls          int
}

func (b *comparison) worth(prompt string) float64 {
	return b.world.Worth(apotest.Prompts{"main": prompt})
}

// verdict returns an error that names the targets that were missed.
func verdict(theirs, ours *side, ratio float64) error {
	const rounding, wanted = 1e-9, 3
	var missed []string
	leads := slices.Clone(ours.worth)
	for i := range leads {
		leads[i] -= theirs.worth[i]
	}
	lead, noise := bench.MeanError(leads)
	if lead < -noise-rounding {
		missed = append(missed, fmt.Sprintf("our prompts are worth %.3f less than Python's, with a standard error of %.3f", -lead, noise))
	}
	if ours.calls > theirs.calls {
		missed = append(missed, fmt.Sprintf("we made %d model calls, Python %d", ours.calls, theirs.calls))
	}
	if ratio < wanted {
		missed = append(missed, fmt.Sprintf("ours is %.1f × as fast, wanted %d", ratio, wanted))
	}
	if missed == nil {
		return nil
	}
	return errors.New(strings.Join(missed, "; "))
}
