package job

import (
	"cmp"
	"context"
	"errors"
	"path/filepath"
	"strconv"

	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/tracker"
)

// mlflowFile remembers the run of an MLflow server, in the folder of the run.
const mlflowFile = "mlflow.run"

// openTrackers opens the trackers of the file. One that cannot be opened is an error: a run should not end before anybody sees that
// its metrics went nowhere.
func (c Config) openTrackers(ctx context.Context, outDir string) (*tracker.Set, error) {
	var list []tracker.Tracker
	file := c.File.Trackers
	if file.MLflow != nil {
		token, err := keys.Secret(c.LookupEnv, "trackers.mlflow.token", file.MLflow.Token)
		if err != nil {
			return nil, err
		}
		m, err := tracker.NewMLflow(ctx, tracker.MLflowConfig{
			URL: file.MLflow.URL, Token: token, Experiment: cmp.Or(file.MLflow.Experiment, "agl"), RunName: file.MLflow.RunName,
			Params:    map[string]string{"algorithm": c.File.Algorithm.Name(), "describe": c.File.Algorithm.Describe(), "seed": strconv.FormatUint(c.File.Seed, 10), "output": outDir},
			StateFile: filepath.Join(outDir, mlflowFile),
		})
		if err != nil {
			return nil, err
		}
		list = append(list, m)
	}
	if file.TensorBoard != "" {
		board, err := tracker.NewTensorBoard(file.TensorBoard)
		if err != nil {
			for _, open := range list {
				err = errors.Join(err, open.Close(context.WithoutCancel(ctx), err))
			}
			return nil, err
		}
		list = append(list, board)
	}
	return tracker.NewSet(c.Logger, list...), nil
}
