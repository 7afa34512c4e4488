package apo_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/apo/apotest"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// counted notes the seeds of the calls that a model answered, and fails from the
// last one on.
type counted struct {
	mu       sync.Mutex
	answered []uint64
	last     int
	fail     func() error
}

func (c *counted) Complete(ctx context.Context, r apo.Request) (apo.Reply, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.fail != nil && len(c.answered) == c.last {
		return apo.Reply{}, c.fail()
	}
	c.answered = append(c.answered, r.Seed)
	return writer(ctx, r)
}

// anonymous is a report without the id of its run.
func anonymous(t *testing.T, r apo.Report) string {
	t.Helper()
	text, err := json.Marshal(r, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	return strings.ReplaceAll(string(text), r.Run, "RUN")
}

// TestResume: a run that was cancelled, and one whose model failed, end as one
// that was not when they go on, and no call that was answered is made again.
func TestResume(t *testing.T) {
	t.Parallel()
	w := apotest.TwoTemplates()
	whole := &counted{}
	cfg := config(3)
	cfg.Rounds, cfg.GradientModel = 4, whole
	want := anonymous(t, search(t, w, cfg))

	errModel := errors.New("the model is broken")
	ctx, cancel := context.WithCancel(t.Context())
	for name, tt := range map[string]struct {
		ctx  context.Context
		fail func() error
		err  error
	}{
		"cancelled": {ctx, func() error { cancel(); return ctx.Err() }, context.Canceled},
		"failed":    {t.Context(), func() error { return errModel }, errModel},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			st := memorytest.Open(t)
			serve(t, st, w.Agent)
			model := &counted{last: 30, fail: tt.fail}
			cfg := config(3)
			cfg.Rounds, cfg.GradientModel, cfg.OutDir = 4, model, t.TempDir()
			a := newAPO(t, cfg)
			if err := a.Run(tt.ctx, w.Input(st)); !errors.Is(err, tt.err) {
				t.Fatalf("got %v, want %v", err, tt.err)
			}
			if r := a.Report(); r.Finished || len(r.Rounds) == 0 {
				t.Errorf("finished %t after %d rounds; want some, and not the end", r.Finished, len(r.Rounds))
			}
			model.fail = nil
			journal := filepath.Join(cfg.OutDir, "journal.jsonl")
			f, err := os.OpenFile(journal, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			_, err = f.WriteString(`{"key":"torn`)
			if err := errors.Join(err, f.Close()); err != nil {
				t.Fatal(err)
			}
			if err := a.Run(t.Context(), w.Input(st)); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, anonymous(t, a.Report())); diff != "" {
				t.Errorf("report (-uninterrupted +resumed):\n%s", diff)
			}
			if len(model.answered) != len(whole.answered) {
				t.Errorf("%d calls were answered over both runs, want %d", len(model.answered), len(whole.answered))
			}
			var onDisk apo.Report
			data, err := os.ReadFile(filepath.Join(cfg.OutDir, "report.json"))
			if err == nil {
				err = json.Unmarshal(data, &onDisk)
			}
			if err != nil || anonymous(t, onDisk) != want {
				t.Errorf("report.json is not the report: %v", err)
			}
			// A finished run that is run again makes no call and no rollout.
			before, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
			if err != nil {
				t.Fatal(err)
			}
			if err := a.Run(t.Context(), w.Input(st)); err != nil {
				t.Fatal(err)
			}
			after, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
			if err != nil || after.Total != before.Total || len(model.answered) != len(whole.answered) {
				t.Errorf("run again: %d more rollouts, %d calls, %v", after.Total-before.Total, len(model.answered), err)
			}
		})
	}
}

// TestResumeElsewhere: a run that goes on with another model endpoint does not use
// the bundles that a store kept with the old one.
func TestResumeElsewhere(t *testing.T) {
	t.Parallel()
	w := apotest.Slope()
	st := memorytest.Open(t)
	serve(t, st, w.Agent)
	cfg := config(1)
	cfg.Rounds, cfg.OutDir = 1, t.TempDir()
	in := w.Input(st)
	for _, endpoint := range []string{"http://old/v1", "http://new/v1", "http://new/v1"} {
		in.InitialResources = append(agl.Resources{{Name: "model", Resource: agl.LLM{Endpoint: endpoint, Model: "m"}}}, in.InitialResources[1:]...)
		a := newAPO(t, cfg)
		if err := a.Run(t.Context(), in); err != nil {
			t.Fatal(err)
		}
		for _, c := range a.Report().Candidates {
			known, err := st.GetResources(t.Context(), agl.GetResourcesParams{ResourcesID: c.ResourcesID})
			if err != nil {
				t.Fatal(err)
			}
			if llm, err := known.Resources.LLM("", ""); err != nil || llm.Endpoint != endpoint {
				t.Errorf("%s names %q, %v; want %s", c.ResourcesID, llm.Endpoint, err, endpoint)
			}
		}
	}
}

func TestJournalOfAnotherSearch(t *testing.T) {
	t.Parallel()
	w := apotest.Slope()
	st := memorytest.Open(t)
	serve(t, st, w.Agent)
	cfg := config(1)
	cfg.Rounds, cfg.OutDir = 1, t.TempDir()
	if err := newAPO(t, cfg).Run(t.Context(), w.Input(st)); err != nil {
		t.Fatal(err)
	}
	cfg.Seed = 2
	err := newAPO(t, cfg).Run(t.Context(), w.Input(st))
	if !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), "seed is \"2\" here and \"1\" there") {
		t.Errorf("got %v, want a conflict that names the seed", err)
	}
	cfg.Seed = 1
	if err := os.WriteFile(filepath.Join(cfg.OutDir, "journal.jsonl"), []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := newAPO(t, cfg).Run(t.Context(), w.Input(st)); !errors.Is(err, agl.ErrConflict) {
		t.Errorf("got %v, want a conflict with what is no journal", err)
	}
}
