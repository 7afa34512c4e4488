// Command live measures how well the template live follows customers whose taste changes. It runs `agl train live.yaml`, the shop
// and the customers as their README says, once for each seed, with and without learning. It prints a table and draws the figure of
// docs/live.md.
package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/trainer/plot"
)

type options struct {
	Agl    string `default:"./agl" help:"The binary (make build)." placeholder:"FILE"`
	Seeds  int    `default:"10" help:"Runs with learning, with the seeds from 1."`
	Frozen int    `default:"2" help:"Runs without learning."`
	Tastes int    `default:"4" help:"Tastes that the customers have one after the other, up to 4."`
	Of     int    `default:"1500" help:"Sessions of a taste, a multiple of 100."`
	Figure string `default:"docs/images/live.svg" help:"The figure." placeholder:"FILE"`
}

func main() {
	bench.Main("live", "Measures how the template live follows customers whose taste changes.", run)
}

// window is the number of sessions over which the pleased customers are counted.
const window = 100

func run(ctx context.Context, opt options) (err error) {
	if opt.Agl, err = filepath.Abs(opt.Agl); err != nil {
		return err
	}
	fmt.Println("| seed | taste | level | lowest after the change | sessions to 95 % of the level before |\n|---|---|---|---|---|")
	var learning, frozen [][]float64
	for seed := 1; seed <= opt.Seeds; seed++ {
		pleased, err := measure(ctx, opt, seed, true)
		if err != nil {
			return err
		}
		learning = append(learning, pleased)
		for _, line := range recoveries(pleased, opt.Of/window) {
			fmt.Printf("| %d | %s |\n", seed, line)
		}
	}
	for seed := 1; seed <= opt.Frozen; seed++ {
		pleased, err := measure(ctx, opt, seed, false)
		if err != nil {
			return err
		}
		frozen = append(frozen, pleased)
		fmt.Printf("| %d | without learning | %.2f | | |\n", seed, bench.Mean(pleased))
	}
	chart := plot.Chart{Title: "Pleased customers", XLabel: "sessions", Unit: true, Series: []plot.Series{series("with learning", learning), series("without", frozen)}}
	return os.WriteFile(opt.Figure, chart.SVG(), 0o644)
}

// recoveries returns a line for each taste: its level, which is the mean of the last three
// windows, and how long it took to reach 95 % of the previous level. Because the share of one
// window has a standard error of 0.03, the mean of two windows must reach it.
func recoveries(pleased []float64, windows int) (lines []string) {
	before := 0.0
	for taste := 0; (taste+1)*windows <= len(pleased); taste++ {
		part := pleased[taste*windows : (taste+1)*windows]
		level := bench.Mean(part[windows-3:])
		back, lowest := "", ""
		if taste > 0 {
			back, lowest = "not", fmt.Sprintf("%.2f", min(part[0], part[1]))
			for i := 1; i < len(part); i++ {
				if bench.Mean(part[i-1:i+1]) >= 0.95*before {
					back = strconv.Itoa((i + 1) * window)
					break
				}
			}
		}
		lines = append(lines, fmt.Sprintf("%d | %.2f | %s | %s", taste+1, level, lowest, back))
		before = level
	}
	return lines
}

// series returns the mean of the runs at each window.
func series(name string, runs [][]float64) plot.Series {
	s := plot.Series{Name: name}
	for i := range runs {
		for k, share := range runs[i] {
			if i == 0 {
				s.Points = append(s.Points, plot.Point{X: float64((k + 1) * window)})
			}
			s.Points[k].Y += share / float64(len(runs))
		}
	}
	return s
}

// program is a process of a run. Its standard error is kept for error messages.
type program struct {
	cmd *exec.Cmd
	log bytes.Buffer
}

func start(ctx context.Context, dir string, env []string, name string, args ...string) (*program, error) {
	p := &program{cmd: exec.CommandContext(ctx, name, args...)}
	p.cmd.Dir, p.cmd.Env = dir, append(os.Environ(), env...)
	p.cmd.Stdout, p.cmd.Stderr = &p.log, &p.log
	p.cmd.WaitDelay = time.Minute
	return p, p.cmd.Start()
}

// stop interrupts the program and waits for its end.
func (p *program) stop() error {
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	err := p.cmd.Wait()
	if _, exit := errors.AsType[*exec.ExitError](err); exit { // it says so itself that it was interrupted
		return nil
	}
	return err
}

// line matches the customers' report of each hundred sessions.
var line = regexp.MustCompile(`^ *\d+ sessions, \w+ +is liked: +(\d+) of the last 100 pleased`)

// measure runs the template and returns the share of pleased customers of each window.
func measure(ctx context.Context, opt options, seed int, learns bool) (pleased []float64, err error) {
	dir, err := os.MkdirTemp("", "agl-live-")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if out, err := exec.CommandContext(ctx, opt.Agl, "init", dir, "--template", "live").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("agl init: %w\n%s", err, out)
	}
	if !learns {
		file := filepath.Join(dir, "live.yaml")
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		if err := os.WriteFile(file, bytes.ReplaceAll(text, []byte("learning_rate: 0.0007"), []byte("learning_rate: 1e-12")), 0o600); err != nil {
			return nil, err
		}
	}
	train, err := start(ctx, dir, nil, opt.Agl, "train", "live.yaml", "--seed", strconv.Itoa(seed))
	if err != nil {
		return nil, err
	}
	defer func() {
		if stopped := train.stop(); stopped != nil || err != nil {
			err = fmt.Errorf("%w\nagl train said:\n%s", errors.Join(err, stopped), train.log.String())
		}
	}()
	shop, err := start(ctx, dir, nil, "python3", "shop.py")
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, shop.stop()) }()
	customers, err := start(ctx, dir, []string{"CUSTOMERS_SEED=" + strconv.Itoa(seed)}, "python3", "customers.py", strconv.Itoa(opt.Tastes*opt.Of), strconv.Itoa(opt.Of))
	if err != nil {
		return nil, err
	}
	if err := customers.cmd.Wait(); err != nil { // also if one call has failed
		return nil, fmt.Errorf("customers.py: %w\n%s", err, customers.log.String())
	}
	said := bufio.NewScanner(strings.NewReader(customers.log.String()))
	for said.Scan() {
		if m := line.FindStringSubmatch(said.Text()); m != nil {
			n, err := strconv.Atoi(m[1])
			if err != nil {
				return nil, err
			}
			pleased = append(pleased, float64(n)/window)
		}
	}
	if want := opt.Tastes * opt.Of / window; len(pleased) != want {
		return nil, fmt.Errorf("customers.py: got %d reports, want %d:\n%s", len(pleased), want, customers.log.String())
	}
	return pleased, nil
}
