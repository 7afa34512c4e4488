//go:build unix

package job

import (
	"context"
	"errors"
	"os"
	"sync"
	"syscall"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/output"
)

// deaf is an algorithm that hears of no end.
type deaf struct {
	algorithms.Baseline

	t     *testing.T
	began chan struct{}
	over  chan struct{}
}

func (d *deaf) New(algorithms.Parts) (algorithms.Run, error) { return deafRun{d}, nil }

type deafRun struct{ *deaf }

// Run implements [algorithms.Run].
func (d deafRun) Run(context.Context, agl.AlgorithmInput) error {
	close(d.began)
	<-d.over
	return nil
}

// Result implements [algorithms.Run].
func (d deafRun) Result() algorithms.Result {
	d.t.Error("the algorithm was asked for its result while it ran")
	return algorithms.Result{}
}

// After a second signal an algorithm may be left running. The run is recorded, without its result.
func TestAlgorithmIsLeftRunning(t *testing.T) { //nolint:paralleltest // the signals are for the process
	a := &deaf{t: t, began: make(chan struct{}), over: make(chan struct{})}
	defer close(a.over)
	cfg := shellJob(t, "echo 1")
	cfg.File.Algorithm = a
	ctx, stop := execution.NotifyContext(t.Context())
	defer stop()
	var signals sync.WaitGroup
	defer signals.Wait()
	returned := make(chan struct{})
	signals.Go(func() {
		select {
		case <-a.began:
		case <-returned:
			return
		}
		for _, ended := range []<-chan struct{}{ctx.Done(), execution.Forced(ctx)} {
			if syscall.Kill(os.Getpid(), syscall.SIGINT) != nil {
				t.Error("the process got no signal")
			}
			<-ended
		}
	})
	result, err := Run(ctx, cfg)
	close(returned)
	if _, interrupted := errors.AsType[*execution.InterruptError](err); !interrupted || result == nil || result.State != output.StateInterrupted {
		t.Fatalf("got %+v, %v; want the record of an interrupted run", result, err)
	}
}
