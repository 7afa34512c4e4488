// Package bench has what the benchmarks share: the command line, processes that are measured, loads of
// calls, CPU times and medians.
//
//	func main() { bench.Main("proxy", "Compares gateways.", run) }
//
// It must not know what is measured.
package bench

import (
	"context"
	"fmt"
	"math"
	"os"
	"os/signal"
	"slices"
	"time"

	"github.com/alecthomas/kong"
)

// Main reads the flags, which are the fields of Options, and runs the benchmark until it ends or is
// interrupted. It does not return after an error.
func Main[Options any](name, description string, run func(context.Context, Options) error) {
	var options Options
	kong.Parse(&options, kong.Description(description))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, options)
	stop()
	Exit(name, err)
}

// Exit ends the process if there is an error.
func Exit(name string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench/%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Median returns the middle value, or the mean of the two middle ones.
func Median[T Number](values []T) T {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 0 {
		return sorted[middle-1] + (sorted[middle]-sorted[middle-1])/2
	}
	return sorted[middle]
}

// Mean returns the mean of at least one value.
func Mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}

// MeanError returns the mean of at least one value and its standard error, 0 of one value.
func MeanError(values []float64) (mean, standardError float64) {
	mean = Mean(values)
	squares := 0.0
	for _, v := range values {
		squares += (v - mean) * (v - mean)
	}
	n := float64(len(values))
	return mean, math.Sqrt(squares / max(n-1, 1) / n)
}

// Quantile returns the time within which this percentage of sorted times lies, 0 if there are none.
func Quantile(times []time.Duration, percent int) time.Duration {
	if len(times) == 0 {
		return 0
	}
	return times[(len(times)-1)*percent/100]
}

// Number is a type that has medians.
type Number interface{ ~int | ~int64 | ~float64 }

// Spent is the time that something took.
type Spent struct{ Wall, CPU time.Duration }

// Measure returns the time that a function takes, including its child processes.
func Measure(do func() error) (Spent, error) {
	before, err := CPU()
	if err != nil {
		return Spent{}, err
	}
	began := time.Now()
	if err := do(); err != nil {
		return Spent{}, err
	}
	wall := time.Since(began)
	after, err := CPU()
	return Spent{wall, after - before}, err
}
