package job

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/output"
)

// colliding is an algorithm that ends with an error, before its first rollout or after it.
type colliding struct {
	algorithms.Baseline

	err error
	now bool
}

func (c *colliding) New(algorithms.Parts) (algorithms.Run, error) { return collidingRun{c}, nil }

type collidingRun struct{ *colliding }

// Run implements [algorithms.Run].
func (c collidingRun) Run(ctx context.Context, in agl.AlgorithmInput) error {
	if c.now {
		return c.err
	}
	_, err := in.Store.EnqueueRollouts(ctx, agl.EnqueueRolloutsParams{Rollouts: make([]agl.EnqueueRollout, 1)})
	return errors.Join(err, c.err)
}

// Result implements [algorithms.Run].
func (collidingRun) Result() algorithms.Result { return algorithms.Result{} }

// A run that cannot continue with a corrected run file is left as it was. One that has gone on with it, and then fails for something that is
// in use elsewhere, keeps the file and says how it has ended.
func TestConflictOfACorrectedRun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		now     bool
		text    string
		message string
	}{
		"refused":    {true, "agent: …\n", "boom"},
		"in mid-run": {false, "corrected", "taken"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := shellJob(t, `echo '{"reward": 1}'`)
			cfg.File.Algorithm = &colliding{err: errors.New("boom")}
			if result, err := Run(t.Context(), cfg); err == nil || result == nil {
				t.Fatalf("got %+v, %v, want a run that fails", result, err)
			}
			cfg.File.Algorithm = &colliding{err: agl.Errorf(agl.CodeConflict, "taken"), now: test.now}
			cfg.Resume, cfg.Source.Text = true, []byte("corrected")
			result, err := Run(t.Context(), cfg)
			if !errors.Is(err, agl.ErrConflict) || (result == nil) != test.now {
				t.Errorf("got %+v, %v", result, err)
			}
			record, _, err := output.Read(cfg.File.Output)
			if text := read(t, filepath.Join(cfg.File.Output, output.ConfigFile)); err != nil || text != test.text || record.State != output.StateFailed {
				t.Errorf("the run file is %q, the record %+v, %v", text, record, err)
			}
			if record.Error != "algorithm: "+test.message {
				t.Errorf("the record says %q, want %q", record.Error, test.message)
			}
			if run := storedRun(t, cfg.File.Output); run.Status != agl.RunFailed || !strings.HasSuffix(run.Error, test.message) {
				t.Errorf("the store says %s, %q, want %q", run.Status, run.Error, test.message)
			}
		})
	}
}

// storedRun reads the only run in the store of a folder.
func storedRun(t *testing.T, folder string) agl.Run {
	t.Helper()
	s, err := store.Open(t.Context(), "sqlite:"+filepath.Join(folder, keys.DatabaseFile), store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	page, err := agl.RunsOf(s).QueryRuns(t.Context(), agl.QueryRunsParams{})
	if err = errors.Join(err, s.Close(t.Context())); err != nil || len(page.Items) != 1 {
		t.Fatalf("%d runs, %v", len(page.Items), err)
	}
	return page.Items[0]
}

// A finished run that refuses a corrected run file stays finished, also in its store.
func TestFinishedRunRefuses(t *testing.T) {
	t.Parallel()
	cfg := shellJob(t, `echo '{"reward": 1}'`)
	runJob(t, cfg)
	cfg.File.Algorithm = &colliding{err: agl.Errorf(agl.CodeConflict, "taken"), now: true}
	cfg.Resume, cfg.Source.Text = true, []byte("corrected")
	if _, err := Run(t.Context(), cfg); !errors.Is(err, agl.ErrConflict) {
		t.Fatalf("got %v, want a conflict", err)
	}
	record, _, err := output.Read(cfg.File.Output)
	if err != nil || record.State != output.StateFinished {
		t.Errorf("the record is %+v, %v", record, err)
	}
	if run := storedRun(t, cfg.File.Output); run.Status != agl.RunFinished || run.Error != "" {
		t.Errorf("the store says %s, %q", run.Status, run.Error)
	}
}
