package grpo_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/store/memory/memorytest"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/tinker/tinkertest"
)

// Every loss trains, over HTTP too, as it does on the engine of this process.
func TestLosses(t *testing.T) {
	t.Parallel()
	for _, loss := range tinker.LossNames()[1:] {
		t.Run(string(loss), func(t *testing.T) {
			t.Parallel()
			st := memorytest.Open(t)
			r := newRemote(t, tinkertest.EngineConfig{}, server.Config{}, client.Config{}, nil)
			_, steps, err := r.process(t, st, "", func(c *grpo.Config) {
				c.Loss = tinker.Loss{Name: loss}
				c.PlainAdvantage = loss == tinker.DRO
				c.Steps, c.GroupSize, c.Minibatches = 30, 8, 2
			})
			if err != nil {
				t.Fatal(err)
			}
			first, last := mean(steps[:5]), mean(steps[25:])
			if last < first+0.2 {
				t.Errorf("the reward went from %v to %v", first, last)
			}
		})
	}
}

func mean(steps []grpo.StepReport) float64 {
	sum := 0.0
	for _, s := range steps {
		sum += s.RewardMean / float64(len(steps))
	}
	return sum
}

// A loss that the engine lacks is refused before there is any rollout.
func TestRefusesLoss(t *testing.T) {
	t.Parallel()
	st := memorytest.Open(t)
	has := []tinker.LossName{tinker.CrossEntropy, tinker.ImportanceSampling}
	r := newRemote(t, tinkertest.EngineConfig{Losses: has}, server.Config{}, client.Config{}, nil)
	_, _, err := r.process(t, st, "", func(c *grpo.Config) { c.Loss.Name = tinker.CISPO })
	if !errors.Is(err, agl.ErrUnimplemented) || !strings.Contains(err.Error(), `the engine has no loss "cispo", only ["cross_entropy" "importance_sampling"]`) {
		t.Errorf("error %v", err)
	}
	page, err := st.QueryRollouts(t.Context(), agl.QueryRolloutsParams{})
	if err != nil || len(page.Items) > 0 {
		t.Errorf("%d rollouts were enqueued (%v)", len(page.Items), err)
	}
}
