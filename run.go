package agl

import (
	"context"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// RunStatus is the status of a run.
type RunStatus string

// The statuses of runs. A run whose process was killed stays running; its UpdateTime says when it last reported
// something.
const (
	RunRunning     RunStatus = "running"
	RunFinished    RunStatus = "finished"
	RunInterrupted RunStatus = "interrupted" // it can be resumed
	RunFailed      RunStatus = "failed"
)

// RunStatuses returns all statuses.
func RunStatuses() []RunStatus {
	return []RunStatus{RunRunning, RunFinished, RunInterrupted, RunFailed}
}

// Run is one execution of any algorithm.
type Run struct {
	RunID     string
	Name      string // for people; may be empty
	Algorithm string // such as "grpo"; may be empty
	Status    RunStatus
	Error     string // why it failed or was interrupted; "" otherwise
	StartTime Timestamp
	// UpdateTime is that of the last change, the last metrics or, of agl train, the last heartbeat.
	UpdateTime Timestamp
	EndTime    Null[Timestamp]
	// Step is the highest step that has metrics; null if none has.
	Step Null[int]
	// Metrics are the latest values, by name.
	Metrics  map[string]float64
	Metadata jsontext.Value // an object; nil is {}
}

func (r *Run) members(w *wireForm) *wireForm {
	w.nonEmpty("run_id", &r.RunID)
	w.string("name", &r.Name)
	w.string("algorithm", &r.Algorithm)
	enum(w, "status", &r.Status, RunStatuses)
	w.string("error", &r.Error)
	w.time("start_time", &r.StartTime)
	w.time("update_time", &r.UpdateTime)
	nullNumber(w, "end_time", &r.EndTime)
	nullInteger(w, "step", &r.Step)
	w.numbers("metrics", &r.Metrics)
	w.dict("metadata", &r.Metadata)
	return w
}

// RunMetrics are the metrics of one step of a run.
type RunMetrics struct {
	Step   int
	Time   Timestamp // when they were last added to
	Values map[string]float64
}

func (m *RunMetrics) members(w *wireForm) *wireForm {
	integer(w, "step", &m.Step)
	w.time("time", &m.Time)
	w.numbers("values", &m.Values)
	return w
}

// numbers is an object of numbers, written in the order of their names.
func (w *wireForm) numbers(name string, values *map[string]float64) {
	if !w.reading {
		o := rawjson.NewObject(nil)
		for _, name := range slices.Sorted(maps.Keys(*values)) {
			o.AnyKey(name)
			o = rawjson.AppendFloat(o, (*values)[name])
		}
		w.out.Raw(name, o.End())
	} else if w.reads(name) {
		read := map[string]float64{}
		w.err = w.in.Dict(func(name []byte) error {
			var v float64
			err := rawjson.Float(w.in, &v)
			read[string(name)] = v
			return err
		})
		*values = read
	}
}

func nullInteger(w *wireForm, name string, i *Null[int]) {
	if w.reading || !i.Valid {
		field(w, name, i,
			func(dst []byte, _ Null[int]) []byte { return append(dst, "null"...) },
			func(in rawjson.Reader, i *Null[int]) error { return i.UnmarshalJSONFrom(in.Decoder) })
		return
	}
	integer(w, name, &i.V)
}

// Runs keeps runs and their metrics. [RunsOf] returns those of a store.
type Runs interface {
	// StartRun creates a run. A run that exists is running again, and keeps what the arguments leave empty.
	StartRun(ctx context.Context, p StartRunParams) (Run, error)
	// UpdateRun changes a run; ErrNotFound. A status other than running sets its end.
	UpdateRun(ctx context.Context, p UpdateRunParams) (Run, error)
	// GetRun returns a run; ErrNotFound.
	GetRun(ctx context.Context, runID string) (Run, error)
	// QueryRuns returns the runs that started last first.
	QueryRuns(ctx context.Context, p QueryRunsParams) (Page[Run], error)
	// DeleteRun deletes a run with its metrics; ErrNotFound. Rollouts stay.
	DeleteRun(ctx context.Context, runID string) error
	// AddRunMetrics adds metrics and returns the run; ErrNotFound. A value replaces the one of the same step and
	// name, so a run that repeats steps, or a repeated call, counts nothing twice.
	AddRunMetrics(ctx context.Context, p AddRunMetricsParams) (Run, error)
	// QueryRunMetrics returns the metrics of a run in the order of its steps; ErrNotFound.
	QueryRunMetrics(ctx context.Context, p QueryRunMetricsParams) (Page[RunMetrics], error)
}

// StartRunParams are the arguments of Runs.StartRun.
type StartRunParams struct {
	RunID     string // empty makes one; otherwise up to 128 letters, digits and ._:-
	Name      string
	Algorithm string
	Metadata  jsontext.Value // an object
}

// UpdateRunParams are the arguments of Runs.UpdateRun. Nil leaves what is there.
type UpdateRunParams struct {
	RunID    string
	Status   *RunStatus
	Error    *string
	Name     *string
	Metadata jsontext.Value // an object
}

// QueryRunsParams are the arguments of Runs.QueryRuns.
type QueryRunsParams struct {
	Limit, Offset int // a Limit of 0 or -1 is all
}

// AddRunMetricsParams are the arguments of Runs.AddRunMetrics.
type AddRunMetricsParams struct {
	RunID string
	// Metrics are those of at most MaxRunSteps steps. Steps are ≥ 0 and differ; values are finite; Time is ignored.
	Metrics []RunMetrics
}

// QueryRunMetricsParams are the arguments of Runs.QueryRunMetrics.
type QueryRunMetricsParams struct {
	RunID         string
	From, To      Null[int] // bound the steps, both inclusive
	Limit, Offset int       // a Limit of 0 or -1 is all
}

// Bounds of metrics.
const (
	MaxRunSteps       = 500 // of one call
	MaxRunMetricNames = 2000
	MaxRunMetricBytes = 200 // of one name
)
