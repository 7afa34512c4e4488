package algorithm_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// keeper is an engine that only forgets weights.
type keeper struct {
	tinker.Service

	deleted []string
	err     error
}

func (k *keeper) DeleteWeights(_ context.Context, p tinker.DeleteWeightsParams) error {
	k.deleted = append(k.deleted, p.Path)
	return k.err
}

func openCheckpoints(t *testing.T, dir string, service tinker.Service) *algorithm.Checkpoints {
	t.Helper()
	c, err := algorithm.OpenCheckpoints(dir, service, nil)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func checkpointOf(step int) algorithm.Checkpoint {
	return algorithm.Checkpoint{
		Step: step, Weights: fmt.Sprintf("tinker://m/weights/%d", step),
		Identity: map[string]string{"seed": "1", "model": "tiny"}, State: jsontext.Value(fmt.Sprintf(`{"n":%d}`, step)),
	}
}

func save(t *testing.T, c *algorithm.Checkpoints, steps ...int) {
	t.Helper()
	for _, step := range steps {
		if err := c.Save(t.Context(), checkpointOf(step)); err != nil {
			t.Fatal(err)
		}
	}
}

func accept(algorithm.Checkpoint) error { return nil }

func TestCheckpointFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	save(t, openCheckpoints(t, dir, &keeper{}), 25)
	got, err := os.ReadFile(filepath.Join(dir, "checkpoint-00000025.json"))
	if err != nil {
		t.Fatal(err)
	}
	want := `{
	"format": "agl-checkpoint-1",
	"step": 25,
	"weights": "tinker://m/weights/25",
	"identity": {
		"model": "tiny",
		"seed": "1"
	},
	"state": {
		"n": 25
	}
}
`
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
}

func TestCheckpointsKeepTwo(t *testing.T) {
	t.Parallel()
	dir, engine := t.TempDir(), &keeper{}
	c := openCheckpoints(t, dir, engine)
	save(t, c, 0, 25, 50, 100)
	if diff := cmp.Diff([]string{"tinker://m/weights/0", "tinker://m/weights/25"}, engine.deleted); diff != "" {
		t.Errorf("deleted weights (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"checkpoint-00000050.json", "checkpoint-00000100.json"}, names(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestCheckpointsPruneFailure: weights that cannot be deleted now are tried
// again, and never cost the checkpoint that is being saved.
func TestCheckpointsPruneFailure(t *testing.T) {
	t.Parallel()
	dir, engine := t.TempDir(), &keeper{err: errors.New("away")}
	c := openCheckpoints(t, dir, engine)
	save(t, c, 1, 2, 3)
	if n := len(names(t, dir)); n != 3 {
		t.Errorf("%d files while the engine is away, want 3", n)
	}
	engine.err = agl.Errorf(agl.CodeNotFound, "gone")
	save(t, c, 4)
	if diff := cmp.Diff([]string{"checkpoint-00000003.json", "checkpoint-00000004.json"}, names(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestCheckpointsInterrupted: a run that is interrupted as it deletes old checkpoints does not warn of it; the next Save
// deletes them, and the next Restore the weights of one that was replaced.
func TestCheckpointsInterrupted(t *testing.T) {
	t.Parallel()
	dir, engine := t.TempDir(), &keeper{}
	var log bytes.Buffer
	c, err := algorithm.OpenCheckpoints(dir, engine, slog.New(slog.NewTextHandler(&log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	save(t, c, 1, 2)
	ctx, interrupt := context.WithCancel(t.Context())
	interrupt()
	engine.err = ctx.Err()
	for i, weights := range []string{"tinker://m/weights/3", "tinker://m/weights/3-again"} { // the second replaces the first, which is noted
		third := checkpointOf(3)
		third.Weights = weights
		if err := c.Save(ctx, third); err != nil || log.Len() > 0 || len(names(t, dir)) != 3+i {
			t.Errorf("%v, %d files, log %s", err, len(names(t, dir)), log.String())
		}
	}
	engine.err, engine.deleted = nil, nil
	resumed := func(algorithm.Checkpoint) error { return nil }
	if _, ok, err := c.Restore(t.Context(), checkpointOf(3).Identity, resumed); err != nil || !ok || !slices.Equal(engine.deleted, []string{"tinker://m/weights/3"}) {
		t.Errorf("restored %t, %v, deleted %q, want the replaced weights", ok, err, engine.deleted)
	}
	save(t, c, 4)
	if diff := cmp.Diff([]string{"checkpoint-00000003.json", "checkpoint-00000004.json"}, names(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

// TestRestoreDropsPending: weights that were saved and of which a killed process
// made no checkpoint are deleted, others not.
func TestRestoreDropsPending(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		saved   []int // checkpoints
		pending int   // step of the weights
		want    []string
	}{
		{"before the first checkpoint", nil, 25, []string{"tinker://m/weights/25"}},
		{"after one", []int{25}, 50, []string{"tinker://m/weights/50"}},
		{"with its checkpoint", []int{25, 50}, 50, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := openCheckpoints(t, dir, &keeper{})
			save(t, c, tc.saved...)
			if err := c.NoteWeights(checkpointOf(tc.pending).Weights); err != nil {
				t.Fatal(err)
			}
			away := &keeper{err: errors.New("away")}
			engine := &keeper{}
			for _, service := range []*keeper{away, engine} { // what fails is tried again
				if _, _, err := openCheckpoints(t, dir, service).Restore(t.Context(), checkpointOf(0).Identity, accept); err != nil {
					t.Fatal(err)
				}
			}
			if diff := cmp.Diff(tc.want, engine.deleted); diff != "" {
				t.Errorf("deleted weights (-want +got):\n%s", diff)
			}
			if n := len(names(t, dir)); n != len(tc.saved) {
				t.Errorf("files %q, want checkpoints only", names(t, dir))
			}
		})
	}
}

// TestSaveReplaces: a checkpoint made again takes the weights of the first with it.
func TestSaveReplaces(t *testing.T) {
	t.Parallel()
	dir, engine := t.TempDir(), &keeper{}
	c := openCheckpoints(t, dir, engine)
	save(t, c, 25, 50)
	again := checkpointOf(50)
	again.Weights = "tinker://m2/weights/50"
	if err := c.NoteWeights(again.Weights); err != nil {
		t.Fatal(err)
	}
	if err := c.Save(t.Context(), again); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"tinker://m/weights/50"}, engine.deleted); diff != "" {
		t.Errorf("deleted weights (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"checkpoint-00000025.json", "checkpoint-00000050.json"}, names(t, dir)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
}

func TestRestore(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openCheckpoints(t, dir, &keeper{})
	if _, ok, err := c.Restore(t.Context(), nil, accept); ok || err != nil {
		t.Fatalf("an empty directory: ok %v, %v; want neither", ok, err)
	}
	save(t, c, 25, 50)
	cp, ok, err := c.Restore(t.Context(), checkpointOf(0).Identity, accept)
	if err != nil || !ok {
		t.Fatalf("ok %v, %v", ok, err)
	}
	if cp.Step != 50 || cp.Weights != "tinker://m/weights/50" || string(compact(t, cp.State)) != `{"n":50}` {
		t.Errorf("restored %+v, want step 50", cp)
	}
}

// TestRestoreSkipsUnfinished: what a kill in the middle of a write leaves behind
// is not looked at, and is cleaned up, whatever the directory is called.
func TestRestoreSkipsUnfinished(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "lr[0.1")
	save(t, openCheckpoints(t, dir, &keeper{}), 25)
	half := filepath.Join(dir, "checkpoint-00000050.json.tmp-7")
	if err := os.WriteFile(half, []byte(`{"format":"agl-checkpoint-1","step":50`), 0o600); err != nil {
		t.Fatal(err)
	}
	cp, ok, err := openCheckpoints(t, dir, &keeper{}).Restore(t.Context(), checkpointOf(0).Identity, accept)
	if err != nil || !ok || cp.Step != 25 {
		t.Errorf("restored step %d, %v, %v; want 25", cp.Step, ok, err)
	}
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the unfinished file is still there (%v)", err)
	}
}

func TestRestoreFallsBack(t *testing.T) {
	t.Parallel()
	lost := agl.Errorf(agl.CodeNotFound, "no such weights")
	rotten := agl.Errorf(agl.CodeInvalid, "load: %w", tinker.ErrDamaged)
	broken := errors.New("engine on fire")
	for _, tc := range []struct {
		name   string
		damage string // content of the newest file, if not empty
		fail   map[int]error
		want   int
		err    error
	}{
		{"newest", "", nil, 50, nil},
		{"damaged file", "{\"format\"", nil, 25, nil},
		{"other format", `{"format":"agl-checkpoint-9"}`, nil, 25, nil},
		{"lost weights", "", map[int]error{50: lost}, 25, nil},
		{"damaged weights", "", map[int]error{50: rotten}, 25, nil},
		{"all damaged", "", map[int]error{50: rotten, 25: rotten}, 0, agl.ErrConflict},
		{"all lost", "", map[int]error{50: lost, 25: lost}, 0, agl.ErrConflict},
		{"of another model", "", map[int]error{50: agl.Errorf(agl.CodeInvalid, "it has 3 layers")}, 0, agl.ErrConflict},
		{"engine fails", "", map[int]error{50: broken}, 0, broken},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			c := openCheckpoints(t, dir, &keeper{})
			save(t, c, 25, 50)
			if tc.damage != "" {
				if err := os.WriteFile(filepath.Join(dir, "checkpoint-00000050.json"), []byte(tc.damage), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			cp, ok, err := c.Restore(t.Context(), checkpointOf(0).Identity, func(cp algorithm.Checkpoint) error { return tc.fail[cp.Step] })
			if !errors.Is(err, tc.err) || ok != (tc.err == nil) || cp.Step != tc.want {
				t.Errorf("step %d, %v, %v; want step %d and error %v", cp.Step, ok, err, tc.want, tc.err)
			}
		})
	}
}

func TestRestoreRefusesOtherRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	c := openCheckpoints(t, dir, &keeper{})
	save(t, c, 25)
	_, _, err := c.Restore(t.Context(), map[string]string{"seed": "2", "model": "tiny", "loss": "ppo"}, func(algorithm.Checkpoint) error {
		t.Error("the weights of another run were loaded")
		return nil
	})
	want := `checkpoint-00000025.json belongs to another run: loss is "ppo" here and "" there, seed is "2" here and "1" there; resume with the same settings or use another directory`
	if !errors.Is(err, agl.ErrConflict) || !strings.HasSuffix(err.Error(), want) {
		t.Errorf("got %v\nwant …%s", err, want)
	}
}

func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func compact(t *testing.T, v jsontext.Value) jsontext.Value {
	t.Helper()
	v = v.Clone()
	if err := v.Compact(); err != nil {
		t.Fatal(err)
	}
	return v
}
