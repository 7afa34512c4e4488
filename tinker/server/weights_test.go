package server

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// Overwriting replaces the weights of a name. If it fails, the old weights remain.
func TestOverwriteKeepsTheOldUntilTheNew(t *testing.T) {
	t.Parallel()
	s, h := newHooked(t, Config{})
	defer s.Close()
	session, m := newModel(t, s)
	seq := 0
	next := func(path, body string) map[string]any {
		seq++
		return retrieve(t, s, path, fmt.Sprintf(`{"model_id":%q,"seq_id":%d,%s}`, m, seq, body))
	}
	loss := func() string {
		out := next(wire.Forward, `"forward_input":{"loss_fn":"cross_entropy","data":[{"model_input":{"chunks":[{"tokens":[1,2]}]},"loss_fn_inputs":{"target_tokens":{"data":[2,3]}}}]}`)
		return fmt.Sprint(out["loss_fn_outputs"].([]any)[0].(map[string]any)["logprobs"])
	}
	learn := func() {
		next(wire.ForwardBackward, `"forward_backward_input":{"loss_fn":"cross_entropy","data":[{"model_input":{"chunks":[{"tokens":[1,2]}]},"loss_fn_inputs":{"target_tokens":{"data":[2,3]}}}]}`)
		next(wire.OptimStep, `"adam_params":{"learning_rate":0.1}`)
	}
	path := next(wire.SaveWeights, `"path":"a"`)["path"]
	snapshot := next(wire.SaveWeightsForSampler, `"path":"a"`)["path"]
	first := loss()
	learn()
	h.saving = func(tinker.SaveWeightsParams) error { return errors.New("the disk is full") }
	for _, call := range []string{wire.SaveWeights, wire.SaveWeightsForSampler} {
		if out := next(call, `"path":"a","overwrite":true`); out["error"] == nil {
			t.Errorf("%s: %v", call, out)
		}
	}
	h.saving = nil
	second := loss()
	load := fmt.Sprintf(`"path":%q`, path)
	next(wire.LoadWeights, load)
	if got := loss(); got != first || first == second {
		t.Errorf("after a failed save: %s, want %s", got, first)
	}
	openSampler(t, s, session, 0, fmt.Sprintf(`"model_path":%q`, snapshot))
	learn()
	second = loss()
	if out := next(wire.SaveWeights, `"path":"a","overwrite":true`); out["path"] != path {
		t.Errorf("%v", out)
	}
	learn()
	next(wire.LoadWeights, load)
	if got := loss(); got != second {
		t.Errorf("after a save: %s, want %s", got, second)
	}
}

// Snapshots without a name are transient, those with a name are not.
func TestSnapshotsWithoutANameAreTransient(t *testing.T) {
	t.Parallel()
	s, h := newHooked(t, Config{})
	defer s.Close()
	_, m := newModel(t, s)
	var got []bool
	h.saving = func(p tinker.SaveWeightsParams) error {
		got = append(got, p.Transient)
		return nil
	}
	for i, what := range []string{`"path":"a"`, `"sampling_session_seq_id":0`} {
		retrieve(t, s, wire.SaveWeightsForSampler, fmt.Sprintf(`{"model_id":%q,"seq_id":%d,%s}`, m, i+1, what))
	}
	if diff := cmp.Diff([]bool{false, true}, got); diff != "" {
		t.Errorf("transient (-want +got):\n%s", diff)
	}
}

// A sampling session never changes its weights, whenever others take their name.
func TestSamplersKeepTheirWeights(t *testing.T) {
	t.Parallel()
	for _, when := range []string{"before it is opened", "when it is opened", "before the save is known"} {
		for _, again := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, again %v", when, again), func(t *testing.T) {
				t.Parallel()
				s, h := newHooked(t, Config{MaxSamplers: 1})
				defer s.Close()
				session, m := newModel(t, s)
				save := func(seq int) string {
					t.Helper()
					out := retrieve(t, s, wire.SaveWeightsForSampler, fmt.Sprintf(`{"model_id":%q,"seq_id":%d,"path":"a","overwrite":true}`, m, seq))
					return out["path"].(string)
				}
				path := save(1)
				source := fmt.Sprintf(`"model_path":%q`, path)
				evict := func(n int) { openSampler(t, s, session, n, `"base_model":"agl-policy"`) }
				overwrite := func() {
					for seq := 2; seq < 5; seq++ {
						retrieve(t, s, wire.ForwardBackward, fmt.Sprintf(`{"model_id":%q,"seq_id":%d,"forward_backward_input":{"loss_fn":"cross_entropy","data":[
							{"model_input":{"chunks":[{"tokens":[1,2,3]}]},"loss_fn_inputs":{"target_tokens":{"data":[2,3,7]}}}]}}`, m, 2*seq))
						retrieve(t, s, wire.OptimStep, step(m, 2*seq+1, 0.1))
					}
					save(20)
				}
				sampler := ""
				if again {
					sampler = openSampler(t, s, session, 0, source)
					evict(1)
				}
				open := func(want int) map[string]any {
					if !again {
						sampler = openSampler(t, s, session, 0, source)
						want = 200
					}
					return call(t, s, "POST", wire.Sample, ask(sampler, 0, `}}`), want)
				}
				switch when {
				case "before it is opened":
					h.opening = overwrite
					open(410)
				case "when it is opened":
					h.opened = overwrite
					open(410)
				case "before the save is known":
					h.saved = func() { open(410) }
					overwrite()
				}
				// Whatever it had is gone, or held until it makes room, and then gone.
				if !again {
					evict(2)
				}
				out := call(t, s, "POST", wire.Sample, ask(sampler, 1, `}}`), 410)
				if !strings.Contains(out["detail"].(string), "they were replaced or deleted") {
					t.Error(out)
				}
			})
		}
	}
}
