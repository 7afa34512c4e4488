package report_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/trainer/report"
)

const evil = `<script>alert(1)</script>`

// sibling makes a training rollout of a run that said something for a reward.
func sibling(t *testing.T, store agl.Store, metadata, said string, reward float64) {
	t.Helper()
	r, err := store.StartRollout(t.Context(), agl.StartRolloutParams{EnqueueRollout: agl.EnqueueRollout{
		Input: jsontext.Value(`{"question":"` + evil + `","api_key":"sk-1"}`), Mode: agl.ModeTrain, Metadata: jsontext.Value(metadata),
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, attributes := range []string{
		`{"gen_ai.prompt.0.role":"user","gen_ai.prompt.0.content":"What is it?","gen_ai.completion.0.role":"assistant","gen_ai.completion.0.content":"` + said + `"}`,
		fmt.Sprintf(`{"agentlightning.reward.0.name":"primary","agentlightning.reward.0.value":%v}`, reward),
	} {
		s := agl.Span{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, SequenceID: int64(i + 1), SpanID: fmt.Sprint(i), Name: "litellm_request", Attributes: agl.Attributes(attributes)}
		if i == 1 {
			s.Name = agl.SpanAnnotation
		}
		if _, err := store.AddSpans(t.Context(), agl.AddSpansParams{Spans: []agl.Span{s}}); err != nil {
			t.Fatal(err)
		}
	}
	status := agl.AttemptSucceeded
	if _, err := store.UpdateAttempt(t.Context(), agl.UpdateAttemptParams{RolloutID: r.RolloutID, AttemptID: r.Attempt.AttemptID, Status: &status}); err != nil {
		t.Fatal(err)
	}
}

func TestRun(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	runs := agl.RunsOf(store)
	run, err := runs.StartRun(t.Context(), agl.StartRunParams{RunID: "ru-1", Name: evil, Algorithm: "grpo"})
	if err != nil {
		t.Fatal(err)
	}
	steps := []agl.RunMetrics{{Step: 1, Values: map[string]float64{"reward_mean": 0.25, "loss": 2}}, {Step: 2, Values: map[string]float64{"reward_mean": 0.5}}, {Step: 3, Values: map[string]float64{"validation/reward_mean": 1}}}
	if _, err := runs.AddRunMetrics(t.Context(), agl.AddRunMetricsParams{RunID: run.RunID, Metrics: steps}); err != nil {
		t.Fatal(err)
	}
	sibling(t, store, `{"run":"ru-1","step":1}`, "of an earlier step", 1)
	sibling(t, store, `{"run":"ru-2","step":2}`, "of another run", 1)
	for i, said := range []string{"first", "second " + evil, "third", "fourth", "fifth"} {
		sibling(t, store, `{"run":"ru-1","step":2}`, said, float64(i)/4)
	}
	sibling(t, store, `{"run":"ru-1","step":2,"group":1}`, "the same", 0.125)
	page, err := report.Run(t.Context(), report.Params{Store: store, Runs: runs, Run: run, Input: func(jsontext.Value) jsontext.Value { return jsontext.Value(`"a task"`) }})
	if err != nil {
		t.Fatal(err)
	}
	text := string(page)
	for _, want := range []string{
		"Training reward", "Validation", "Loss", "Groups of step 2", `<td>0</td><td>&#34;a task&#34;</td><td>5</td><td>0.5</td><td>0</td><td>1</td><td>yes</td>`,
		`<td>1</td><td>&#34;a task&#34;</td><td>1</td><td>0.125</td><td>0.125</td><td>0.125</td><td>nothing: it has one rollout`, "fifth", "fourth", "first", "second &lt;script&gt;", "the same", "default-src 'none'",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the page has no %s", want)
		}
	}
	for _, not := range []string{"<script", "sk-1", "of an earlier step", "of another run", "third", "KL", "src=", "href="} {
		if strings.Contains(text, not) {
			t.Errorf("the page has %s", not)
		}
	}
	if strings.Index(text, "fifth") > strings.Index(text, "first") {
		t.Error("the best rollout stands behind the worst")
	}
}

// Text that turns its direction could pass for another one.
func TestDirectionIsShown(t *testing.T) {
	t.Parallel()
	if page := string(report.Page("a\u202e", "\u2066שלום")); !strings.Contains(page, "<title>a⟨202E⟩</title>") || !strings.Contains(page, "\n⟨2066⟩שלום<") {
		t.Errorf("page %s", page)
	}
}

// TestRunWithoutMetrics: a program that keeps no metrics has groups nevertheless.
func TestRunWithoutMetrics(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	runs := agl.RunsOf(store)
	run, err := runs.StartRun(t.Context(), agl.StartRunParams{RunID: "ru-1"})
	if err != nil {
		t.Fatal(err)
	}
	sibling(t, store, `{"run":"ru-1","step":3}`, "of an earlier step", 1)
	sibling(t, store, `{"run":"ru-1","step":4}`, "of the last step", 1)
	page, err := report.Run(t.Context(), report.Params{Store: store, Runs: runs, Run: run})
	if text := string(page); err != nil || !strings.Contains(text, "Groups of step 4") || !strings.Contains(text, "of the last step") || strings.Contains(text, "of an earlier step") {
		t.Errorf("page %s, error %v", page, err)
	}
}

func TestRunWithoutRollouts(t *testing.T) {
	t.Parallel()
	store := memorytest.Open(t)
	runs := agl.RunsOf(store)
	run, err := runs.StartRun(t.Context(), agl.StartRunParams{RunID: "ru-1"})
	if err != nil {
		t.Fatal(err)
	}
	page, err := report.Run(t.Context(), report.Params{Store: store, Runs: runs, Run: run})
	if err != nil || !strings.Contains(string(page), "The run has no metrics.") || strings.Contains(string(page), "Groups") {
		t.Errorf("page %s, error %v", page, err)
	}
}

// Programs such as Python's json write letters beyond ASCII as \uXXXX; a report shows tasks as they were written.
func TestTasksAsTheyWereWritten(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	report.WriteTask(&b, &report.Rollout{AttemptedRollout: agl.AttemptedRollout{Rollout: agl.Rollout{Input: jsontext.Value(`{"q":"\u4e2d\u6587 <b>"}`)}}})
	if got := b.String(); !strings.Contains(got, "中文 &lt;b&gt;") {
		t.Errorf("got %s", got)
	}
}
