// Command overhead measures the cost of the system: it compares the calculator example with the same training without store,
// proxy, HTTP, spans or adapters. There, as many goroutines as the example has runners call the policy's Go API. It prints both
// times and their ratio.
package main

import (
	"context"
	"fmt"
	"os/exec"
	"runtime/debug"
	"strconv"

	"github.com/agl-go/agl/bench/internal/bench"
)

type options struct {
	Calculator string `default:"./calculator" help:"The example's binary (go build ./examples/calculator)." placeholder:"FILE"`
	Seed       uint64 `default:"1" help:"Seed of both."`
	Steps      int    `default:"120" help:"Steps of reinforcement learning."`
	Runners    int    `default:"16" help:"Rollouts that run at once."`
	Rounds     int    `default:"1" help:"How often both are run; the median of the ratios counts."`
	Direct     bool   `help:"Run only the training without the system."`
}

func main() {
	debug.SetGCPercent(400) // as the example does
	bench.Main("overhead", "Measures the system's overhead on the calculator example, as a ratio.", run)
}

func run(ctx context.Context, opt options) error {
	var wall, cpu []float64
	for range opt.Rounds {
		passRate := 0.0
		direct, err := bench.Measure(func() (err error) {
			passRate, err = train(ctx, opt)
			return err
		})
		if err != nil {
			return err
		}
		fmt.Printf("%-16s %7.2fs wall %7.2fs cpu  pass rate %.3f\n", "without system", direct.Wall.Seconds(), direct.CPU.Seconds(), passRate)
		if opt.Direct {
			continue
		}
		system, err := measureSystem(ctx, opt)
		if err != nil {
			return err
		}
		fmt.Printf("%-16s %7.2fs wall %7.2fs cpu\n", "whole system", system.Wall.Seconds(), system.CPU.Seconds())
		wall = append(wall, system.Wall.Seconds()/direct.Wall.Seconds())
		cpu = append(cpu, system.CPU.Seconds()/direct.CPU.Seconds())
	}
	if !opt.Direct {
		fmt.Printf("overhead: %.2f× wall, %.2f× cpu\n", bench.Median(wall), bench.Median(cpu))
	}
	return nil
}

func measureSystem(ctx context.Context, opt options) (bench.Spent, error) {
	cmd := exec.CommandContext(ctx, opt.Calculator,
		"--seed", strconv.FormatUint(opt.Seed, 10), "--steps", strconv.Itoa(opt.Steps), "--runners", strconv.Itoa(opt.Runners))
	return bench.Measure(func() error {
		if output, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", opt.Calculator, err, output)
		}
		return nil
	})
}
