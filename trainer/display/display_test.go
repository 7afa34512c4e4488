package display

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/algorithm/sft"
)

func TestChart(t *testing.T) {
	t.Parallel()
	const want = "" +
		"1.0 ┤⠀⠈\n" +
		"0.0 ┤⡠⠂\n" +
		"    └──\n" +
		"     steps 3 to 6\n"
	if got := chart(3, []float64{0, 0.2, 0.3, 1}, 10, 2); got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	long := make([]float64, 1000)
	for line := range strings.SplitSeq(chart(1, long, 20, 4), "\n") {
		if n := len([]rune(line)); n > 25 {
			t.Errorf("a line of %d columns: %q", n, line)
		}
	}
	if chart(1, nil, 10, 2) != "" {
		t.Error("a chart of nothing is not empty")
	}
}

func TestPlainPrintsOneLinePerStep(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	d := &Curve{Display: New(false, Options{Out: &out})}
	for step := 1; step <= 250; step++ {
		d.OnWarmStart(sft.StepReport{Step: step, Steps: 250, Loss: 1})
	}
	d.OnStart(algorithm.Start{Steps: 2})
	d.OnStep(grpo.StepReport{Step: 0, Steps: 2})
	d.OnValidation(0, algorithm.Report{Rate: algorithm.NewRate(1, 4)})
	d.OnStep(grpo.StepReport{Step: 1, Steps: 2, PassRate: 0.5, Masked: map[algorithm.Mask]int{"timeout": 2, "panic": 1}})
	d.OnWarning(algorithm.Warning{Message: "look here"})
	d.Close()
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	want := []string{"warm start  100/250", "warm start  200/250", "warm start  250/250", "validation after step 0: pass rate 0.250 of 4", "step    1/2", "warning: look here"}
	if len(lines) != len(want) {
		t.Fatalf("%d lines:\n%s", len(lines), out.String())
	}
	for i := range want {
		if !strings.HasPrefix(lines[i], want[i]) {
			t.Errorf("line %d is %q, want %q…", i, lines[i], want[i])
		}
	}
	if !strings.Contains(lines[4], "masked 3") || len(d.Values) != 1 || d.Values[0] != 0.5 {
		t.Errorf("line %q, curve %v", lines[4], d.Values)
	}
}

// The live view is drawn from what happened alone, so it can be looked at
// without a terminal.
func TestViewDraws(t *testing.T) {
	t.Parallel()
	began := time.Now()
	var model = newView(Options{WarmSteps: 100, Steps: 20, Began: began})
	report := algorithm.Report{Rate: algorithm.NewRate(3, 10)}
	for _, msg := range []any{
		warmMsg(sft.StepReport{Step: 100, Steps: 100, Loss: 0.25}),
		startMsg(algorithm.Start{Steps: 20}),
		validationMsg{0, report},
		rolloutsMsg{algorithm.PhaseTrain, 3, 64, 128},
		stepMsg(grpo.StepReport{Step: 2, Steps: 20, Rollouts: 128, RewardMean: 0.5, Forms: map[string]algorithm.Rate{"plus": algorithm.NewRate(1, 2)}}),
		warningMsg("warning: all groups are equal"),
		tickMsg(began.Add(10 * time.Second)),
	} {
		next, _ := model.Update(msg)
		model = next.(view)
	}
	text := model.View().Content
	for _, want := range []string{"100/100", "loss 0.250", "pass rate 0.30", "2/20", "10s so far, about ", "64/128", "plus", "warning: all groups are equal"} {
		if !strings.Contains(text, want) {
			t.Errorf("the view lacks %q:\n%s", want, text)
		}
	}
}
