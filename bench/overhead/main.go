// Command overhead measures what the system costs: the calculator example
// against the same training without store, proxy, HTTP, spans or adapters, its
// rollouts run by as many goroutines as the example has runners, each calling
// the policy's Go API. It prints both times and their ratio.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime/debug"
	"slices"
	"strconv"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
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
	var opt options
	debug.SetGCPercent(400) // as the example does
	kong.Parse(&opt, kong.Description("Measures the system's overhead on the calculator example, as a ratio."))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, opt)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/overhead:", err)
		os.Exit(1)
	}
}

// cost is what a run took.
type cost struct {
	wall, cpu time.Duration
	passRate  float64
}

func run(ctx context.Context, opt options) error {
	var wall, cpu []float64
	for range opt.Rounds {
		direct, err := measureDirect(ctx, opt)
		if err != nil {
			return err
		}
		fmt.Printf("%-16s %7.2fs wall %7.2fs cpu  pass rate %.3f\n", "without system", direct.wall.Seconds(), direct.cpu.Seconds(), direct.passRate)
		if opt.Direct {
			continue
		}
		system, err := measureSystem(ctx, opt)
		if err != nil {
			return err
		}
		fmt.Printf("%-16s %7.2fs wall %7.2fs cpu\n", "whole system", system.wall.Seconds(), system.cpu.Seconds())
		wall = append(wall, system.wall.Seconds()/direct.wall.Seconds())
		cpu = append(cpu, system.cpu.Seconds()/direct.cpu.Seconds())
	}
	if !opt.Direct {
		slices.Sort(wall)
		slices.Sort(cpu)
		fmt.Printf("overhead: %.2f× wall, %.2f× cpu\n", wall[len(wall)/2], cpu[len(cpu)/2])
	}
	return nil
}

func measureDirect(ctx context.Context, opt options) (cost, error) {
	before, err := processCPU()
	if err != nil {
		return cost{}, err
	}
	began := time.Now()
	rate, err := train(ctx, opt)
	if err != nil {
		return cost{}, err
	}
	wall := time.Since(began)
	after, err := processCPU()
	return cost{wall: wall, cpu: after - before, passRate: rate}, err
}

func processCPU() (time.Duration, error) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, err
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), nil
}

func measureSystem(ctx context.Context, opt options) (cost, error) {
	cmd := exec.CommandContext(ctx, opt.Calculator,
		"--seed", strconv.FormatUint(opt.Seed, 10), "--steps", strconv.Itoa(opt.Steps), "--runners", strconv.Itoa(opt.Runners))
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return cost{}, fmt.Errorf("%s: %w\n%s", opt.Calculator, err, output.String())
	}
	return cost{wall: time.Since(began), cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()}, nil
}
