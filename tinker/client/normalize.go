package client

import (
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
)

// pass is a forward pass over a batch, with or without its gradient.
type pass func(p tinker.ForwardParams) (tinker.ForwardResult, error)

// summed adds the gradient of the sum of a batch's losses on an engine that averages ([engines.DatumMean]), which scales
// the advantages of the batch: importance_sampling, ppo and cispo are linear in them.
//
// If the sampler's log-probabilities are those of the current weights, importance_sampling has the gradient of
// cross_entropy. So cross_entropy is sent as importance_sampling, after a forward pass. On an engine without
// importance_sampling it stays averaged.
func summed(e engines.Engine, p tinker.ForwardParams, forward, backward pass) (tinker.ForwardResult, error) {
	sent := p
	switch {
	case p.Loss.Name == tinker.DRO:
		return tinker.ForwardResult{}, agl.Errorf(agl.CodeUnimplemented, "client: loss: this engine averages losses, which cannot be undone for %q: it is not linear in the advantages", p.Loss.Name)
	case p.Loss.Name == tinker.CrossEntropy && !e.SumsLosses():
		return backward(p)
	case p.Loss.Name == tinker.CrossEntropy:
		now, err := forward(p)
		if err != nil {
			return tinker.ForwardResult{}, err
		}
		sent = tinker.ForwardParams{Loss: tinker.Loss{Name: tinker.ImportanceSampling}, Data: slices.Clone(p.Data)}
		for i := range sent.Data {
			d := &sent.Data[i]
			d.Logprobs, d.Advantages = now.Logprobs[i], slices.Repeat([]float32{1}, len(d.Input))
		}
	}
	data, err := scaled(sent.Data)
	if err != nil {
		return tinker.ForwardResult{}, err
	}
	res, err := backward(tinker.ForwardParams{Data: data, Loss: sent.Loss})
	if err != nil {
		return tinker.ForwardResult{}, err
	}
	res.Loss = 0
	for i := range res.Losses { // those of the engine are of what was sent
		res.Losses[i] = p.Loss.Elementwise(&p.Data[i], res.Logprobs[i])
		for _, v := range res.Losses[i] {
			res.Loss += float64(v)
		}
	}
	return res, nil
}

// scaled returns data with advantages for which the engine's average is the sum of the batch.
func scaled(data []tinker.Datum) ([]tinker.Datum, error) {
	data = slices.Clone(data)
	for i := range data {
		d := &data[i]
		sum := float64(len(d.Input))
		if d.Weights != nil {
			sum = 0
			for _, w := range d.Weights {
				sum += float64(w)
			}
		}
		if !(sum > 0) {
			return nil, invalid("data[%d]: weights: their sum is %v, by which this engine divides", i, sum)
		}
		d.Advantages = slices.Clone(d.Advantages)
		for j := range d.Advantages {
			d.Advantages[j] *= float32(sum * float64(len(data)))
		}
	}
	return data, nil
}

// folded moves the weights of a batch into its advantages, in which importance_sampling, ppo and cispo are linear, for engines whose
// losses take no weights. A position of weight 0 gets the advantage 0. Other losses stay as they are.
func folded(p tinker.ForwardParams) tinker.ForwardParams {
	if !p.Loss.Name.OfPolicy() || p.Loss.Name == tinker.DRO {
		return p
	}
	p.Data = slices.Clone(p.Data)
	for i := range p.Data {
		d := &p.Data[i]
		if d.Weights == nil {
			continue
		}
		d.Advantages = slices.Clone(d.Advantages)
		for j, w := range d.Weights {
			d.Advantages[j] *= w
		}
		d.Weights = nil
	}
	return p
}
