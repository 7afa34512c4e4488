package grpo

import (
	"math"
	"math/rand/v2"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// Anchor mixes demonstrations into every step, against forgetting: to the loss of a step it adds
//
//	Weight · mean of −log π(oₜ)   over the tokens of PerStep demonstrations
//
// which is the pretraining mix of InstructGPT (PPO-ptx, Ouyang et al. 2022, arXiv:2203.02155, eq. 2). Unlike the penalty of KL,
// whose gradient is that of what was sampled, it does not vanish for replies that the model no longer gives. So now and then the
// model of a live run still replies in each way that was demonstrated, and the run notices when its users come to prefer another
// one.
type Anchor struct {
	// Data are the demonstrations; those of a step are drawn in turn, in an order that depends on the seed. None turns it off.
	Data []tinker.Datum
	// PerStep is how many a step takes, at most all; zero means 8.
	PerStep int
	// Weight is in units of the advantage; zero means 0.1.
	Weight float64
}

func (a *Anchor) validate() error {
	switch {
	case a == nil:
		return nil
	case len(a.Data) == 0:
		return agl.Errorf(agl.CodeInvalid, "Anchor.Data is empty")
	case a.PerStep < 1:
		return agl.Errorf(agl.CodeInvalid, "Anchor.PerStep is %d, must be at least 1", a.PerStep)
	case !(a.Weight > 0) || math.IsInf(a.Weight, 0):
		return agl.Errorf(agl.CodeInvalid, "Anchor.Weight is %v, must be a finite number above 0", a.Weight)
	}
	for i, d := range a.Data {
		if err := d.Validate(tinker.CrossEntropy, 0); err != nil {
			return agl.Errorf(agl.CodeInvalid, "Anchor.Data[%d]: %w", i, err)
		}
	}
	return nil
}

// of returns the demonstrations of a step, from 1 on. The weights of their tokens sum to Weight.
func (a *Anchor) of(step int, seed uint64) []tinker.Datum {
	n := min(a.PerStep, len(a.Data))
	order := rand.New(rand.NewPCG(seed, 0x616e63686f72)).Perm(len(a.Data))
	batch := make([]tinker.Datum, n)
	total := 0.0
	for i := range batch {
		batch[i] = a.Data[order[((step-1)*n+i)%len(order)]]
		for _, w := range batch[i].Weights {
			total += float64(w)
		}
	}
	for i, d := range batch {
		weights := make([]float32, len(d.Weights))
		for k, w := range d.Weights {
			weights[k] = float32(float64(w) * a.Weight / total)
		}
		batch[i].Weights = weights
	}
	return batch
}
