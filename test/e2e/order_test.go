//go:build unix

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/proxy/proxytest"
)

// pythonProgram is a task for testdata/order_agent.py.
type pythonProgram struct {
	Steps   []string `json:"steps"`
	Width   int      `json:"width"`
	DelayMS int      `json:"delay_ms"` // delay of OpenTelemetry's batches
	By      string   `json:"by"`       // how rewards are emitted: opentelemetry or agl_go
}

// pythonWorld is a store, a proxy and a runner, each a process of its own; the runner
// keeps a process of Python.
type pythonWorld struct {
	store agl.Store
	venv  string
}

func newPythonWorld(t *testing.T) pythonWorld {
	t.Helper()
	venv := os.Getenv("AGL_COMPAT_VENV")
	if venv == "" {
		t.Skip("AGL_COMPAT_VENV does not name an environment with OpenTelemetry and the Python package; test/compat/venv.sh makes one")
	}
	_, storeURL := startStore(t)
	model := proxytest.NewServer(proxytest.Busy("retried", proxytest.VLLM(func(prompt string, _ int) string { return "reply to " + prompt })))
	t.Cleanup(model.Close)
	_, proxyURL := startProxy(t, storeURL, model.BaseURL())
	store := connect(t, storeURL)
	if _, err := store.AddResources(t.Context(), agl.AddResourcesParams{Resources: agl.Resources{
		{Name: "llm", Resource: agl.ProxyLLM{LLM: agl.LLM{Endpoint: proxyURL + "/v1", Model: "m"}}},
	}}); err != nil {
		t.Fatal(err)
	}
	library, err := filepath.Abs("../../python/src")
	if err != nil {
		t.Fatal(err)
	}
	startMerged(t, aglBinary, []string{
		"runner", "--store", storeURL, "--keepalive", "stdio", "--", filepath.Join(venv, "bin", "python"), filepath.Join("testdata", "order_agent.py"),
	}, []string{"PYTHONPATH=" + library, "PYTHONDONTWRITEBYTECODE=1"})
	return pythonWorld{store, venv}
}

// run runs a program as one rollout, and returns its spans.
func (w pythonWorld) run(t *testing.T, p pythonProgram) ([]agl.Span, error) {
	task, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	queued, err := w.store.EnqueueRollouts(t.Context(), agl.EnqueueRolloutsParams{Rollouts: []agl.EnqueueRollout{{Input: task}}})
	if err != nil {
		return nil, err
	}
	id := queued[0].RolloutID
	done, err := w.store.WaitForRollouts(t.Context(), agl.WaitForRolloutsParams{RolloutIDs: []string{id}, Timeout: agl.Some(longest)})
	if err != nil {
		return nil, err
	}
	if len(done) != 1 || done[0].Status != agl.RolloutSucceeded {
		return nil, fmt.Errorf("the rollout ended as %+v", done)
	}
	page, err := w.store.QuerySpans(t.Context(), agl.QuerySpansParams{RolloutID: id})
	return page.Items, err
}

// rewards returns the rewards of the calls by agl's adapter, and by that of the Python package.
func (w pythonWorld) rewards(t *testing.T, spans []agl.Span) (ours, theirs []agl.Null[float64]) {
	t.Helper()
	triplets, err := adapter.ProxyTriplets{}.Adapt(spans)
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range triplets {
		ours = append(ours, one.Reward)
	}
	docs, err := json.Marshal(spans)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), filepath.Join(w.venv, "bin", "python"), filepath.Join("testdata", "order_adapt.py"))
	var stderr strings.Builder
	command.Stdin, command.Stderr = bytes.NewReader(docs), &stderr
	out, err := command.Output()
	if err == nil {
		err = json.Unmarshal(out, &theirs)
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	return ours, theirs
}

// TestRewardsOfAPythonProcess is an agent in Python that rewards each of its calls at
// once. All its spans reach the store when it ends.
func TestRewardsOfAPythonProcess(t *testing.T) {
	t.Parallel()
	w := newPythonWorld(t)
	for _, by := range []string{"opentelemetry", "agl_go"} {
		spans, err := w.run(t, pythonProgram{Steps: []string{"call", "reward", "stream", "reward", "call", "reward"}, DelayMS: int(time.Hour.Milliseconds()), By: by})
		if err != nil {
			t.Fatal(err)
		}
		ours, theirs := w.rewards(t, spans)
		want := []agl.Null[float64]{agl.Some(0.2), agl.Some(0.4), agl.Some(0.6)} // by step
		if !slices.Equal(ours, want) || !slices.Equal(theirs, want) {
			t.Errorf("rewards by %s: got %v, the Python package's adapter %v; want %v", by, ours, theirs, want)
		}
		if final, err := adapter.FinalReward(spans); err != nil || final != agl.Some(0.6) {
			t.Errorf("final reward by %s: got %v, %v; want 0.6", by, final, err)
		}
	}
}

// TestOrderOfAPythonProcess draws 1,000 programs as test/order does, for a real process.
func TestOrderOfAPythonProcess(t *testing.T) {
	t.Parallel()
	w := newPythonWorld(t)
	for range 10 { // 100 programs each
		rapid.Check(t, func(rt *rapid.T) { checkPythonOrder(t, rt, w) })
	}
}

// checkPythonOrder draws a program, runs it, and checks that each reward comes after the calls that ended before it, and not
// after those that began later.
func checkPythonOrder(t *testing.T, rt *rapid.T, w pythonWorld) {
	t.Helper()

	p := pythonProgram{
		Steps:   rapid.SliceOfN(rapid.SampledFrom([]string{"call", "stream", "retried", "calls", "reward", "reward", "message", "operation"}), 1, 12).Draw(rt, "steps"),
		Width:   rapid.IntRange(2, 3).Draw(rt, "calls at once"),
		DelayMS: rapid.SampledFrom([]int{1, 5, 3_600_000}).Draw(rt, "delay of batches"),
		By:      rapid.SampledFrom([]string{"opentelemetry", "agl_go"}).Draw(rt, "rewards by"),
	}
	spans, err := w.run(t, p)
	if err != nil {
		rt.Fatal(err)
	}
	type event struct {
		sequence int64
		step     int
		reward   bool
	}
	var events []event
	want := 0
	for i, step := range p.Steps {
		calls := map[string]int{"call": 1, "stream": 1, "retried": 1, "calls": p.Width}[step]
		want += calls
		for n := range calls {
			said := fmt.Sprintf("question %d of step %d.", n, i)
			for j := range spans {
				if text, _ := spans[j].Attributes.GetString("llm.hosted_vllm.choices"); spans[j].Name == agl.SpanRawRequest && strings.Contains(text, said) {
					events = append(events, event{spans[j].SequenceID, i, false})
				}
			}
		}
		if step == "reward" {
			want++
		}
	}
	for i := range spans {
		value, err := adapter.PrimaryReward(&spans[i])
		if err != nil {
			rt.Fatal(err)
		}
		if value.Valid {
			events = append(events, event{spans[i].SequenceID, int(value.V*10+0.5) - 1, true})
		}
	}
	if len(events) != want {
		rt.Fatalf("%d calls and rewards are recorded, want %d", len(events), want)
	}
	for _, one := range events {
		for _, other := range events {
			// A late reward shares the id of the call after it: adapters match it to
			// calls with smaller ids.
			late := one.sequence == other.sequence && one.reward
			if (one.reward || other.reward) && one.step < other.step && one.sequence >= other.sequence && !late {
				rt.Errorf("step %d (%s) has the sequence id %d, step %d (%s) has %d",
					one.step, p.Steps[one.step], one.sequence, other.step, p.Steps[other.step], other.sequence)
			}
		}
	}
}
