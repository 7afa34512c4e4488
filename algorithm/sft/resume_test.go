package sft_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/sft"
	"github.com/agl-go/agl/store/memory/memorytest"
)

// after ends a run after a step.
func after(step int) func(*world, *sft.Config, func()) {
	return func(_ *world, cfg *sft.Config, end func()) {
		cfg.OnStep = func(r sft.Report) {
			if r.Step == step {
				end()
			}
		}
	}
}

// sampled ends a run when so many rollouts of training have come.
func sampled(rollouts int) func(*world, *sft.Config, func()) {
	return func(_ *world, cfg *sft.Config, end func()) {
		n := 0
		cfg.Progress.OnRollouts = func(phase algorithm.Phase, _, done, total int) {
			if phase == algorithm.PhaseTrain && done == total {
				if n += total; n == rollouts {
					end()
				}
			}
		}
	}
}

// validating ends a run in the validation after a step.
func validating(step int) func(*world, *sft.Config, func()) {
	return func(_ *world, cfg *sft.Config, end func()) {
		cfg.Progress.OnRollouts = func(phase algorithm.Phase, of, done, total int) {
			if phase == algorithm.PhaseValidation && of == step && done < total {
				end()
			}
		}
	}
}

// publishing ends a run in its n-th publication.
func publishing(n int) func(*world, *sft.Config, func()) {
	return func(w *world, cfg *sft.Config, end func()) {
		cfg.Publisher = publisher(func(ctx context.Context, p algorithm.Publication) error {
			if n--; n == 0 {
				end()
				return ctx.Err()
			}
			return w.Publish(ctx, p)
		})
	}
}

type publisher func(ctx context.Context, p algorithm.Publication) error

// Publish implements algorithm.Publisher.
func (f publisher) Publish(ctx context.Context, p algorithm.Publication) error { return f(ctx, p) }

// A run that is killed in a round, and goes on, ends as one that was not: of its own rollouts and of stored ones.
func TestResumes(t *testing.T) {
	t.Parallel()
	teacher := newWorld(t, "", nil)
	if _, err := teacher.run(t.Context(), t, teacher.rejection("")); err != nil {
		t.Fatal(err)
	}
	stored := func(w *world, out string) sft.Config {
		cfg := w.rejection(out)
		cfg.From, cfg.Filter, cfg.Rounds, cfg.Steps, cfg.CheckpointEvery = sft.Stored(teacher.store), sft.Filter{Best: 1}, 1, 60, 10
		return cfg
	}
	often := func(w *world, out string) sft.Config {
		cfg := w.rejection(out)
		cfg.CheckpointEvery = 5
		return cfg
	}
	for _, tc := range []struct {
		name   string
		config func(w *world, out string) sft.Config
		ends   func(w *world, cfg *sft.Config, end func())
		killed bool // without a checkpoint of the steps since the one before
		from   int
	}{
		{"own", (*world).rejection, after(47), false, 47},
		{"own, killed", (*world).rejection, after(47), true, 40},
		{"own, killed after a checkpoint in a round", often, after(47), true, 45},
		{"own, when the rollouts of a round have come", (*world).rejection, sampled(2 * 16 * vocab), false, 20},
		{"own, in a publication", (*world).rejection, publishing(3), false, 40},
		{"own, in a validation", (*world).rejection, validating(40), false, 40},
		{"stored", stored, after(37), false, 37},
		{"stored, killed", stored, after(37), true, 30},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			whole, wholeOut := newWorld(t, "", nil), t.TempDir()
			want, err := whole.run(t.Context(), t, tc.config(whole, wholeOut))
			if err != nil {
				t.Fatal(err)
			}
			st, weights, out := memorytest.Open(t), t.TempDir(), t.TempDir()
			first := newWorld(t, weights, st)
			ctx, kill := context.WithCancel(t.Context())
			cfg := tc.config(first, out)
			tc.ends(first, &cfg, kill)
			if _, err := first.run(ctx, t, cfg); !errors.Is(err, context.Canceled) {
				t.Fatalf("the killed run gave %v", err)
			}
			if tc.killed {
				files, err := filepath.Glob(filepath.Join(out, "checkpoints", "*.json"))
				if err == nil {
					err = os.Remove(files[len(files)-1])
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			second := newWorld(t, weights, st)
			cfg = tc.config(second, out)
			from := -1
			cfg.Progress.OnStart = func(s algorithm.Start) { from = s.Step }
			got, err := second.run(t.Context(), t, cfg)
			if err != nil {
				t.Fatal(err)
			}
			if from != tc.from || !got.Resumed {
				t.Errorf("resumed at step %d, want %d", from, tc.from)
			}
			page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{ModeIn: []agl.Mode{agl.ModeTrain}})
			if err != nil {
				t.Fatal(err)
			}
			if made := want.Totals.Rollouts - 6*2*vocab; cfg.From == nil && page.Total != made {
				t.Errorf("%d training rollouts were made, want %d", page.Total, made)
			}
			if diff := cmp.Diff(lines(t, wholeOut), lines(t, out)); diff != "" {
				t.Errorf("metrics (-uninterrupted +resumed):\n%s", diff)
			}
			if diff := cmp.Diff(probe(t, whole.service, want.Weights), probe(t, second.service, got.Weights)); diff != "" {
				t.Errorf("weights (-uninterrupted +resumed):\n%s", diff)
			}
			if diff := cmp.Diff(want.Totals, got.Totals); diff != "" {
				t.Errorf("totals (-uninterrupted +resumed):\n%s", diff)
			}
			other := tc.config(second, out)
			other.Filter.Best++
			if _, err := second.run(t.Context(), t, other); !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), "filter is") {
				t.Errorf("another filter: %v", err)
			}
		})
	}
}

// lines are those of metrics.jsonl without times.
func lines(t *testing.T, out string) []map[string]any {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(out, "metrics.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	for line := range bytes.Lines(data) {
		var one map[string]any
		if err := json.Unmarshal(line, &one); err != nil {
			t.Fatal(err)
		}
		delete(one, "seconds")
		delete(one, "validate_seconds")
		list = append(list, one)
	}
	return list
}
