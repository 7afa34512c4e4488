// Package tracker copies the metrics of a run to where people look at them: TensorBoard event files and MLflow servers.
//
// A [Set] takes the lines of metrics.jsonl as they are written, and gives their numbers to each [Tracker]:
//
//	board, err := tracker.NewTensorBoard("board")
//	set := tracker.NewSet(logger, board)
//	set.Line(ctx, line)
//	set.Close(ctx, nil)
//
// The package must not know which algorithm wrote the lines.
package tracker

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/internal/background"
)

// Tracker takes the metrics of a run. Its methods are called one at a time.
type Tracker interface {
	// Log takes the metrics of a line, the last ones of its own step, others of an earlier step.
	Log(ctx context.Context, line []agl.RunMetrics) error
	// Close ends the run; failed is its error, nil if it succeeded.
	Close(ctx context.Context, failed error) error
}

// Set is the trackers of a run. Repeated failures of a tracker are reported once. No failure ends the run.
type Set struct {
	trackers []Tracker
	logger   *slog.Logger

	mu      sync.Mutex
	failing bool
}

// NewSet makes a set. The logger gets failures.
func NewSet(logger *slog.Logger, trackers ...Tracker) *Set {
	return &Set{trackers: trackers, logger: logger}
}

// lineTime is how long trackers may take for a line.
const lineTime = mlflowTimeout

// Line takes a line of metrics.jsonl. Lines without a step or a round are reported and left out. Trackers get the line of a
// run that was interrupted meanwhile, too: metrics.jsonl has it, and a run that resumes does not write it again.
func (s *Set) Line(ctx context.Context, line []byte) {
	if len(s.trackers) == 0 {
		return
	}
	all, err := Flatten(line)
	if err != nil {
		s.logger.WarnContext(ctx, "metrics cannot be tracked", "error", err)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := execution.CleanupContext(ctx, lineTime)
	defer cancel()
	errs := make([]error, len(s.trackers))
	for i, t := range s.trackers {
		errs[i] = t.Log(ctx, all)
	}
	err = errors.Join(errs...)
	if err != nil && !s.failing {
		s.logger.WarnContext(ctx, "metrics are not tracked", "step", all[len(all)-1].Step, "error", err)
	}
	s.failing = err != nil
}

// Close closes all trackers. Failures are not reported after a second signal (see [execution.Forced]), which ends the store and
// the requests that trackers need.
func (s *Set) Close(ctx context.Context, failed error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.trackers {
		if err := t.Close(ctx, failed); err != nil && !background.Closed(execution.Forced(ctx)) {
			s.logger.WarnContext(ctx, "close a tracker", "error", err)
		}
	}
}

// errNoStep says that a line has neither a step nor a round.
var errNoStep = errors.New("the line has neither a step nor a round")

// Flatten returns the step or the round of a line and its other numbers. The numbers of an object in it are named by the path to them, with
// slashes, such as validation/pass_rate, and so are those of a list, by index. The line of a validation before the first step has the
// validation and its time alone: nothing was trained yet. A validation of an earlier step that ran beside training comes first, as numbers of
// that step.
func Flatten(line []byte) (all []agl.RunMetrics, err error) {
	var doc map[string]any
	if err := json.Unmarshal(line, &doc); err != nil {
		return nil, fmt.Errorf("read a line of metrics: %w", err)
	}
	if beside, ok := doc["beside"].(map[string]any); ok {
		delete(doc, "beside")
		if one, ok := numbersOf(map[string]any{"step": beside["step"], "validation": beside["validation"]}); ok {
			all = append(all, one)
		}
	}
	one, ok := numbersOf(doc)
	if !ok {
		return nil, errNoStep
	}
	return append(all, one), nil
}

// numbersOf takes the step or the round from a document; it is false if there is neither.
func numbersOf(doc map[string]any) (one agl.RunMetrics, ok bool) {
	name := "step"
	number, ok := doc[name].(float64)
	if !ok {
		name = "round"
		number, ok = doc[name].(float64)
	}
	if !ok {
		return agl.RunMetrics{}, false
	}
	delete(doc, name)
	if _, validated := doc["validation"]; number == 0 && validated {
		doc = map[string]any{"validation": doc["validation"], "seconds": doc["seconds"]}
	}
	one = agl.RunMetrics{Step: int(number), Values: map[string]float64{}}
	flatten(one.Values, "", doc)
	return one, true
}

func flatten(to map[string]float64, path string, value any) {
	below := func(name string) string {
		if path == "" {
			return name
		}
		return path + "/" + name
	}
	switch v := value.(type) {
	case float64:
		to[path] = v
	case map[string]any:
		for name, member := range v {
			flatten(to, below(name), member)
		}
	case []any:
		for i, element := range v {
			flatten(to, below(fmt.Sprint(i)), element)
		}
	}
}
