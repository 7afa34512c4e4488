package trainer

import (
	"context"
	"fmt"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/execution"
)

// Dev tries the agent before anything is trained: the baseline algorithm runs it on the first tasks of the datasets in this
// process, logs each rollout in detail, and reports. Config's Algorithm, Strategy and Database are not used: without a
// Store, nothing is stored.
func (t *Trainer) Dev(ctx context.Context) (baseline.Report, error) {
	cfg := t.cfg
	if cfg.Agent == nil {
		return baseline.Report{}, agl.Errorf(agl.CodeInvalid, "trainer: Agent: none given, there is nothing to try")
	}
	if cfg.Train == nil && cfg.Val == nil {
		return baseline.Report{}, agl.Errorf(agl.CodeInvalid, "trainer: Train and Val: none given, there is nothing to try the agent on")
	}
	var err error
	if cfg.Train, err = firstTasks("Train", cfg.Train, cfg.DevTasks); err != nil {
		return baseline.Report{}, err
	}
	if cfg.Val, err = firstTasks("Val", cfg.Val, cfg.DevTasks); err != nil {
		return baseline.Report{}, err
	}
	config := baseline.Config{SpanVerbosity: baseline.SpanKeyValues}
	config.Logger = cfg.Logger
	if cfg.Proxy != nil {
		config.Adapter, config.Flusher = adapter.ProxyTriplets{}, cfg.Proxy
	}
	algorithm, err := baseline.New(config)
	if err != nil {
		return baseline.Report{}, err
	}
	cfg.Algorithm, cfg.OwnResources, cfg.Database = algorithm, false, "memory:"
	err = t.run(ctx, cfg, execution.SharedMemory{Logger: cfg.Logger})
	return algorithm.Report(), err
}

// firstTasks returns at most n tasks of a dataset.
func firstTasks(name string, d agl.Dataset, n int) (agl.Dataset, error) {
	if d == nil {
		return nil, nil //nolint:nilnil // there is no dataset
	}
	tasks := make(agl.Tasks, 0, n)
	for i := range min(n, d.Len()) {
		task, err := d.Task(i)
		if err != nil {
			return nil, fmt.Errorf("trainer: %s: %w", name, err)
		}
		tasks = append(tasks, task)
	}
	return tasks, nil
}
