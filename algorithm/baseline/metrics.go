package baseline

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// Finished is a finished task, with the totals of the run: one line of metrics.jsonl.
type Finished struct {
	Epoch int      `json:"epoch"` // from 1
	Mode  agl.Mode `json:"mode"`
	Index int      `json:"index"` // in its dataset
	// Task is a hash of the input. It detects a dataset that has changed.
	Task string `json:"task"`
	// Resources is a hash of the prompts and the sampling parameters, Seed that of the run. Earlier versions wrote neither.
	Resources string            `json:"resources,omitzero"`
	Seed      agl.Null[uint64]  `json:"seed,omitzero"`
	RolloutID string            `json:"rollout_id"`
	Attempts  int               `json:"attempts"`
	Outcome   agl.OutcomeKind   `json:"outcome"`
	Reward    agl.Null[float64] `json:"reward"`
	Mask      algorithm.Mask    `json:"mask,omitzero"` // why there is no reward
	Spans     int               `json:"spans"`
	Triplets  int               `json:"triplets"`

	// Done of Total tasks are done, Earlier of them by earlier runs. Failed have an
	// outcome other than ok. Rewarded have a reward, whose mean is RewardMean.
	Done       int     `json:"-"`
	Total      int     `json:"-"`
	Earlier    int     `json:"-"`
	Failed     int     `json:"-"`
	Rewarded   int     `json:"-"`
	RewardMean float64 `json:"-"`
}

// position of a task in a run.
type position struct {
	epoch int
	mode  agl.Mode
	index int
}

func (f *Finished) position() position { return position{f.Epoch, f.Mode, f.Index} }

// taskHash identifies an input.
func taskHash(input []byte) string {
	sum := sha256.Sum256(input)
	const short = 8
	return hex.EncodeToString(sum[:short])
}

// resourcesHash identifies what the results depend on in resources.
func resourcesHash(resources agl.Resources) string {
	return taskHash([]byte(algorithm.FingerprintPrompts(resources) + "\n" + algorithm.SamplingOf(resources)))
}

// metricsFile holds the results in a run's directory.
const metricsFile = "metrics.jsonl"

// openMetrics opens the file and reads what earlier runs have done. Without a directory there is no file.
func openMetrics(dir string) (metrics *algorithm.Lines, done []Finished, err error) {
	if dir == "" {
		return nil, nil, nil
	}
	metrics, err = algorithm.OpenLines(filepath.Join(dir, metricsFile), func(line []byte) (bool, error) {
		var one Finished
		if err := json.Unmarshal(line, &one); err != nil || one.Epoch < 1 {
			return false, agl.Errorf(agl.CodeConflict, "line %d is not a result of the baseline; use another directory", len(done)+1)
		}
		done = append(done, one)
		return true, nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("open metrics: %w", err)
	}
	return metrics, done, nil
}
