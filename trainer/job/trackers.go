package job

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/tracker"
)

// mlflowFile remembers the run of an MLflow server, in the folder of the run.
const mlflowFile = "mlflow.run"

// openTrackers opens the trackers of the file, and adds the run of the store unless it is nil. One that cannot be opened is an error: a
// run should not end before anybody sees that its metrics went nowhere.
func (c Config) openTrackers(ctx context.Context, run *tracker.Run, outDir string) (_ *tracker.Set, err error) {
	var list []tracker.Tracker
	if run != nil {
		run.Heartbeat(ctx, c.Logger)
		list = append(list, run)
	}
	defer func() {
		for _, open := range list {
			if err != nil {
				err = errors.Join(err, open.Close(context.WithoutCancel(ctx), err))
			}
		}
	}()
	file := c.File.Trackers
	if file.MLflow != nil {
		token, err := keys.Secret(c.LookupEnv, "trackers.mlflow.token", file.MLflow.Token)
		if err != nil {
			return nil, err
		}
		cfg := *file.MLflow
		cfg.Token, cfg.Experiment = token, cmp.Or(cfg.Experiment, "agl")
		cfg.Params = map[string]string{"algorithm": c.File.Algorithm.Name(), "describe": c.File.Algorithm.Describe(), "seed": strconv.FormatUint(c.File.Seed, 10), "output": outDir}
		cfg.StateFile, cfg.Transport = filepath.Join(outDir, mlflowFile), c.transport()
		m, err := tracker.NewMLflow(ctx, cfg)
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	if file.TensorBoard != "" {
		path, err := filepath.Abs(outDir)
		if err != nil {
			return nil, err
		}
		// In a folder of its own: the first step of a run drops what files beside its own have.
		board, err := tracker.NewTensorBoard(filepath.Join(file.TensorBoard, filepath.Base(path)))
		if err != nil {
			return nil, err
		}
		list = append(list, board)
	}
	return tracker.NewSet(c.Logger, list...), nil
}

// startRun starts the run in the store, or goes on with it. It returns nil for a store without runs. If it is refused because another run is under
// way there, a new run is deleted from the store, and one that it already had ends with outcome of the error that is returned.
func (c Config) startRun(ctx context.Context, runs agl.Runs, runID, outDir string, outcome func(error) error) (*tracker.Run, error) {
	path, err := filepath.Abs(outDir)
	if err != nil {
		return nil, err
	}
	file := c.File
	about := map[string]any{"describe": file.Algorithm.Describe(), "seed": file.Seed, tracker.Output: path, "version": c.Version, tracker.Exclusive: true}
	metadata, err := json.Marshal(about, json.Deterministic(true))
	if err != nil {
		return nil, err
	}
	var run *tracker.Run
	switch {
	case runs == nil:
		err = agl.Errorf(agl.CodeUnimplemented, "the store has no runs")
	case c.sharesStore():
		err = tracker.NotElsewhere(ctx, runs, runID, path, time.Now())
	}
	if err == nil {
		run, err = tracker.NewRun(ctx, runs, agl.StartRunParams{RunID: runID, Name: filepath.Base(path), Algorithm: file.Algorithm.Name(), Metadata: metadata})
	}
	if agl.ErrorCode(err) == agl.CodeUnimplemented {
		c.Logger.WarnContext(ctx, "the store keeps no metrics of runs", "error", err)
		return nil, nil //nolint:nilnil // there is nothing to keep
	}
	if err == nil && c.sharesStore() {
		err = run.Alone(ctx, outcome)
	}
	return run, err
}
