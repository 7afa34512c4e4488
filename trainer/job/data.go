package job

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/dataset"
	"github.com/agl-go/agl/trainer/runfile"
)

// loadData reads the tasks of a run. val is nil when there are none.
func loadData(d runfile.Data) (train, val agl.Tasks, err error) {
	if d.Train != nil { // some algorithms need none
		if train, err = loadTasks(*d.Train, d.Shuffle, d.Seed); err != nil {
			return nil, nil, fmt.Errorf("data.train: %w", err)
		}
	}
	switch {
	case d.Val != nil:
		if val, err = loadTasks(*d.Val, d.Shuffle, d.Seed); err != nil {
			return nil, nil, fmt.Errorf("data.val: %w", err)
		}
	case d.ValShare > 0:
		train, val, err = split(train, d.ValShare)
	}
	return train, val, err
}

// doubts returns what is valid in the tasks, but probably a mistake. A task in both lists is one only if the algorithm
// trains.
func doubts(train, val agl.Tasks, trains bool) (list []string) {
	var several []jsontext.Value
	if len(train) == 1 && json.Unmarshal(train[0], &several) == nil && len(several) > 1 {
		list = append(list, fmt.Sprintf("data.train has one task, which is a list of %d; in a file of JSON lines, each line is a task", len(several)))
	}
	trained := make(map[string]bool, len(val)) // by validation task, whether it is a training task, too
	for _, task := range val {
		trained[string(task)] = false
	}
	for _, task := range train {
		if _, validates := trained[string(task)]; validates {
			trained[string(task)] = true
		}
	}
	both := 0
	for _, task := range val {
		if trained[string(task)] {
			both++
		}
	}
	if trains && both > 0 {
		list = append(list, fmt.Sprintf("%d of %d validation tasks are training tasks, too; what they show is not how well new tasks are done", both, len(val)))
	}
	return list
}

// Doubts returns what is valid in the tasks of a run file, but probably a mistake.
func Doubts(file *runfile.File) ([]string, error) {
	train, val, err := loadData(file.Data)
	if err != nil {
		return nil, err
	}
	return doubts(train, val, trains(file)), nil
}

// trains reports whether the algorithm improves something on the training tasks.
func trains(file *runfile.File) bool {
	needs := file.Algorithm.Needs()
	return needs.Losses != nil || needs.Prompts
}

// datasetOf returns the tasks; nil if there are none.
func datasetOf(tasks agl.Tasks) agl.Dataset {
	if tasks == nil {
		return nil
	}
	return tasks
}

// loadTasks reads one file, and shuffles its tasks if shuffle is true.
func loadTasks(t runfile.Tasks, shuffle bool, seed uint64) (_ agl.Tasks, err error) {
	reader, err := dataset.Open(t.Path, t.Options)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, reader.Close()) }()
	tasks, err := reader.Tasks()
	if err != nil {
		return nil, err
	}
	if shuffle {
		order := algorithm.NewShuffle(len(tasks), seed)
		mixed := make(agl.Tasks, len(tasks))
		for i := range mixed {
			mixed[i] = tasks[order.At(i)]
		}
		tasks = mixed
	}
	if t.Limit > 0 && t.Limit < len(tasks) {
		tasks = tasks[:t.Limit]
	}
	return tasks, nil
}

// split takes a share of the tasks, the last ones, at least one and not all.
func split(tasks agl.Tasks, share float64) (train, val agl.Tasks, err error) {
	if len(tasks) < 2 {
		return nil, nil, agl.Errorf(agl.CodeInvalid, "data.val_share: got %v of %d tasks, at least 2 are needed", share, len(tasks))
	}
	n := int(share*float64(len(tasks)) + 0.5)
	n = min(max(n, 1), len(tasks)-1)
	return tasks[:len(tasks)-n], tasks[len(tasks)-n:], nil
}
