package grpo

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// Curriculum samples the tasks by learning progress: most often those on which the pass rate has lately changed, in either
// direction. Of each task it keeps a fast and a slow moving average of the pass rate of its groups; their distance is the task's
// progress, as in Kanitscheider et al. 2021 (arXiv:2106.14876, §3), without its preference for hard tasks. Tasks that were not
// seen yet come first.
type Curriculum struct {
	// Explore is the share of tasks that are drawn without regard to progress, in (0, 1]; zero means 0.2. A task that is never
	// drawn shows no progress.
	Explore float64
}

// Listener is a [Source] that hears how its tasks went.
type Listener interface {
	Source
	// Heard is called when a group of a task has finished, whether it is trained on or dropped. Rewards are those of its
	// rollouts that count; with several roles, those of the first role. It is called by the goroutine that calls Next, in the
	// order of the groups.
	Heard(task Task, rewards []float64)
}

// The rates of the moving averages: half of the weight is on the last 2 and the last 7 groups.
const (
	fastRate = 0.3
	slowRate = 0.1
)

// leastProgress is added to the progress of every task, so that all are drawn alike where there is next to none.
const leastProgress = 0.01

// pace holds the moving averages of a task's pass rate.
type pace struct {
	Groups int     `json:"groups"`
	Fast   float64 `json:"fast"`
	Slow   float64 `json:"slow"`
}

func (p *pace) add(rate float64) {
	p.Groups++
	if p.Groups == 1 {
		p.Fast, p.Slow = rate, rate
		return
	}
	p.Fast += fastRate * (rate - p.Fast)
	p.Slow += slowRate * (rate - p.Slow)
}

// curriculumSource is the source of a Curriculum.
type curriculumSource struct {
	data        agl.Dataset
	explore     float64
	seed        uint64
	pass        float64
	fingerprint string
	state       curriculumState
}

type curriculumState struct {
	Drawn int    `json:"drawn"`
	Paces []pace `json:"paces"` // by task
}

// newCurriculumSource makes a source that draws tasks of a dataset by learning progress; seed decides the draws. pass is the
// reward from which a rollout counts as passed.
func newCurriculumSource(data agl.Dataset, seed uint64, pass float64, c Curriculum) (Listener, error) {
	plain, err := NewDatasetSource(data, seed)
	if err != nil {
		return nil, err
	}
	if c.Explore == 0 {
		c.Explore = defaultExplore
	}
	return &curriculumSource{
		data: data, explore: c.Explore, seed: seed, pass: pass, fingerprint: fmt.Sprintf("%s curriculum explore=%v", plain.Fingerprint(), c.Explore),
		state: curriculumState{Paces: make([]pace, data.Len())},
	}, nil
}

const defaultExplore = 0.2

// Next implements [Source]. The tasks differ if there are enough.
func (s *curriculumSource) Next(_ context.Context, n int) ([]Task, error) {
	chances := s.chances()
	tasks := make([]Task, n)
	for i := range tasks {
		if i%len(chances) == 0 && i > 0 {
			chances = s.chances()
		}
		random := rand.New(rand.NewPCG(algorithm.DeriveSeed(s.seed, "curriculum", s.state.Drawn), 0))
		index := draw(chances, random.Float64())
		chances[index] = 0
		s.state.Drawn++
		input, err := s.data.Task(index)
		if err != nil {
			return nil, fmt.Errorf("read train dataset: %w", err)
		}
		tasks[i] = Task{Input: input, Index: index}
	}
	return tasks, nil
}

// chances returns the weight of each task in the draw.
func (s *curriculumSource) chances() []float64 {
	chances := make([]float64, len(s.state.Paces))
	sum := 0.0
	for i, p := range s.state.Paces {
		chances[i] = 1 // not seen yet: the largest possible progress
		if p.Groups > 0 {
			chances[i] = math.Abs(p.Fast-p.Slow) + leastProgress
		}
		sum += chances[i]
	}
	uniform := 1 / float64(len(chances))
	for i := range chances {
		chances[i] = s.explore*uniform + (1-s.explore)*chances[i]/sum
	}
	return chances
}

// draw returns the index at which the running sum of chances passes a share, in [0, 1), of their
// sum, which is positive.
func draw(chances []float64, share float64) int {
	sum := 0.0
	for _, c := range chances {
		sum += c
	}
	left, last := share*sum, 0
	for i, c := range chances {
		if c == 0 {
			continue
		}
		if last = i; left < c {
			return i
		}
		left -= c
	}
	return last // by rounding
}

// Heard implements [Listener].
func (s *curriculumSource) Heard(task Task, rewards []float64) {
	if len(rewards) == 0 {
		return
	}
	passed := 0.0
	for _, r := range rewards {
		if r >= s.pass {
			passed++
		}
	}
	s.state.Paces[task.Index].add(passed / float64(len(rewards)))
}

// State implements [Source].
func (s *curriculumSource) State() (jsontext.Value, error) { return json.Marshal(s.state) }

// Restore implements [Source].
func (s *curriculumSource) Restore(state jsontext.Value) error {
	var st curriculumState
	if err := json.Unmarshal(state, &st); err != nil {
		return agl.Errorf(agl.CodeInvalid, "position in the curriculum: %w", err)
	}
	if st.Drawn < 0 || len(st.Paces) != s.data.Len() {
		return agl.Errorf(agl.CodeInvalid, "position in the curriculum: %d draws over %d tasks, want at least 0 over %d", st.Drawn, len(st.Paces), s.data.Len())
	}
	s.state = st
	return nil
}

// Fingerprint implements [Source].
func (s *curriculumSource) Fingerprint() string { return s.fingerprint }
