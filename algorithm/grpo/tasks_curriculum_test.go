package grpo

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

func curriculum(t *testing.T, explore float64) *curriculumSource {
	t.Helper()
	var tasks agl.Tasks
	for range 9 {
		tasks = append(tasks, jsontext.Value("{}"))
	}
	s, err := newCurriculumSource(tasks, 1, 1, Curriculum{Explore: explore})
	if err != nil {
		t.Fatal(err)
	}
	return s.(*curriculumSource)
}

// study draws tasks and tells how they went: 0, 1 and 2 are always done, 3, 4 and 5 never, and each visit to the others makes them
// pass 4 % more often, up to always.
func study(t *testing.T, s *curriculumSource, visits []int, draws int) {
	t.Helper()
	for range draws {
		list, err := s.Next(t.Context(), 1)
		if err != nil {
			t.Fatal(err)
		}
		task := list[0]
		visits[task.Index]++
		rewards := make([]float64, 25)
		passed := 0
		switch {
		case task.Index < 3:
			passed = 25
		case task.Index >= 6:
			passed = min(visits[task.Index], 25)
		}
		for i := range passed {
			rewards[i] = 1
		}
		s.Heard(task, rewards)
	}
}

func TestCurriculum(t *testing.T) {
	t.Parallel()
	s, visits := curriculum(t, 0), make([]int, 9)
	study(t, s, visits, 60)
	learning := visits[6] + visits[7] + visits[8]
	// Of 60 draws the first 9 or so see each task; of the others 4 of 5 and a third of the rest go to what is being learned.
	if learning < 36 {
		t.Errorf("visits %v: %d of 60 to tasks that are being learned, want at least 36", visits, learning)
	}
	study(t, s, visits, 600)
	for i, n := range visits {
		if n == 0 {
			t.Errorf("task %d is never drawn", i)
		}
	}
	before := visits[6] + visits[7] + visits[8]
	study(t, s, visits, 300)
	if now := visits[6] + visits[7] + visits[8] - before; now > 200 {
		t.Errorf("%d of 300 draws go to tasks that are learned by now, want about 100", now)
	}
}

// TestCurriculumRestore: a source that is restored draws what the first would have.
func TestCurriculumRestore(t *testing.T) {
	t.Parallel()
	s, visits := curriculum(t, 0.5), make([]int, 9)
	study(t, s, visits, 40)
	state, err := s.State()
	if err != nil {
		t.Fatal(err)
	}
	other := curriculum(t, 0.5)
	if err := other.Restore(state); err != nil {
		t.Fatal(err)
	}
	want, _ := s.Next(t.Context(), 20)
	got, err := other.Next(t.Context(), 20)
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("restored (%v):\n%s", err, diff)
	}
	seen := map[int]bool{}
	for _, task := range want[:9] {
		seen[task.Index] = true
	}
	if len(seen) != 9 {
		t.Errorf("9 tasks at once are %v, want each once", seen)
	}
	for _, wrong := range []string{`{"drawn":-1,"paces":[]}`, `{"drawn":1,"paces":[]}`, `[]`} {
		if err := other.Restore(jsontext.Value(wrong)); !errors.Is(err, agl.ErrInvalid) {
			t.Errorf("%s: error is %v, want agl.ErrInvalid", wrong, err)
		}
	}
}

// TestOverlong has the numbers of DAPO's eq. 13.
func TestOverlong(t *testing.T) {
	t.Parallel()
	o := Overlong{Limit: 100, Margin: 20, Penalty: 1}
	for tokens, want := range map[int]float64{0: 0, 80: 0, 81: -0.05, 90: -0.5, 99: -0.95, 100: -1, 500: -1} {
		if got := o.of(tokens); math.Abs(got-want) > 1e-12 {
			t.Errorf("%d tokens get %v, want %v", tokens, got, want)
		}
	}
	sequences := []adapter.Trajectory{{Replies: []adapter.Reply{replyAt(1, 0, 90), replyAt(2, 100, 150)}}, {Replies: []adapter.Reply{replyAt(3, 0, 85)}}}
	if got := o.worst(sequences); got != -0.5 {
		t.Errorf("the rollout gets %v, want -0.5", got)
	}
	turns := []turn{{togo: 1}, {reply: 1, togo: 1}, {sequence: 1, togo: 1}}
	o.punish(turns, sequences, 0.5)
	for i, want := range []float64{1 - 0.5 - 0.25*0.25, 1 - 0.5*0.25, 1 - 0.25} {
		if math.Abs(turns[i].togo-want) > 1e-12 {
			t.Errorf("turn %d has the reward-to-go %v, want %v", i, turns[i].togo, want)
		}
	}
	if (Overlong{}).of(1000) != 0 {
		t.Error("no limit has a penalty")
	}
	// Two rollouts with the same reward differ by their lengths, and reports do not show it as a reward.
	g := taskGroup{{reward: 1, sequences: sequences, overlong: -0.5}, {reward: 1, sequences: sequences}}
	adv, ok := credit(CreditTrajectory, GroupMean, true, g)
	if !ok || adv[0][0][0] != -0.25 || adv[1][0][0] != 0.25 {
		t.Errorf("advantages %v, want -0.25 and 0.25", adv)
	}
	var r StepReport
	countSamples([]taskGroup{g}, 1, &r)
	if r.RewardMean != 1 || r.PassRate != 1 || r.Overlong != -0.25 {
		t.Errorf("reward %v, pass rate %v, penalty %v; want 1, 1, -0.25", r.RewardMean, r.PassRate, r.Overlong)
	}
}

func TestOverlongRefused(t *testing.T) {
	t.Parallel()
	for want, o := range map[string]Overlong{
		"Overlong.Limit is 0":    {Margin: 3},
		"Overlong.Limit is -1":   {Limit: -1},
		"Overlong.Margin is 0":   {Limit: 5},
		"Overlong.Margin is 6":   {Limit: 5, Margin: 6},
		"Overlong.Penalty is -1": {Limit: 5, Margin: 1, Penalty: -1},
	} {
		if err := o.validate(); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("error is %v, want %s", err, want)
		}
	}
}
