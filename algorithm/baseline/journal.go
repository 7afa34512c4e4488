package baseline

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// Finished is a task that is done, and how the run stands with it: one line of
// metrics.jsonl.
type Finished struct {
	Epoch int      `json:"epoch"` // counted from 1
	Mode  agl.Mode `json:"mode"`
	Index int      `json:"index"` // in its dataset
	// Task tells the tasks of a dataset that has changed apart: a hash of the input.
	Task      string            `json:"task"`
	RolloutID string            `json:"rollout_id"`
	Attempts  int               `json:"attempts"`
	Outcome   agl.OutcomeKind   `json:"outcome"`
	Reward    agl.Null[float64] `json:"reward"`
	Mask      algorithm.Mask    `json:"mask,omitzero"` // why there is no reward
	Spans     int               `json:"spans"`
	Triplets  int               `json:"triplets"`

	// Done of Total tasks are done, Earlier of them by runs that this one goes on
	// from; Failed have an outcome other than ok, and Rewarded a reward, whose mean
	// is RewardMean.
	Done       int     `json:"-"`
	Total      int     `json:"-"`
	Earlier    int     `json:"-"`
	Failed     int     `json:"-"`
	Rewarded   int     `json:"-"`
	RewardMean float64 `json:"-"`
}

// place is a task's place in a run.
type place struct {
	epoch int
	mode  agl.Mode
	index int
}

func (f *Finished) place() place { return place{f.Epoch, f.Mode, f.Index} }

// taskHash is what tells an input from another.
func taskHash(input []byte) string {
	sum := sha256.Sum256(input)
	const short = 8
	return hex.EncodeToString(sum[:short])
}

// metricsFile is the file of results in a run's directory.
const metricsFile = "metrics.jsonl"

// journal is the file of what is done. A nil one keeps nothing.
type journal struct {
	mu   sync.Mutex
	file *os.File
}

// openJournal reads what earlier runs have done and cuts off a last line that was
// not written to its end. With dir empty there is no file.
func openJournal(dir string) (*journal, []Finished, error) {
	if dir == "" {
		return nil, nil, nil
	}
	const dirMode, fileMode = 0o750, 0o600
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, nil, fmt.Errorf("open metrics: %w", err)
	}
	path := filepath.Join(dir, metricsFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, nil, fmt.Errorf("open metrics: %w", err)
	}
	done, err := readJournal(f, path)
	if err != nil {
		return nil, nil, errors.Join(err, f.Close())
	}
	return &journal{file: f}, done, nil
}

func readJournal(f *os.File, path string) ([]Finished, error) {
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, fmt.Errorf("read metrics: %w", err)
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	if err := f.Truncate(int64(len(whole))); err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	if _, err := f.Seek(int64(len(whole)), io.SeekStart); err != nil {
		return nil, fmt.Errorf("open metrics: %w", err)
	}
	var done []Finished
	for line := range bytes.Lines(whole) {
		var one Finished
		if err := json.Unmarshal(line, &one); err != nil || one.Epoch < 1 {
			return nil, agl.Errorf(agl.CodeConflict, "%s:%d: not a result of the baseline; use another directory", path, len(done)+1)
		}
		done = append(done, one)
	}
	return done, nil
}

func (j *journal) write(f *Finished) error {
	if j == nil {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	line, err := json.Marshal(f, json.Deterministic(true))
	if err == nil {
		_, err = j.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	return nil
}

func (j *journal) close() error {
	if j == nil {
		return nil
	}
	return errors.Join(j.file.Sync(), j.file.Close())
}
