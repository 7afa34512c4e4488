package client

import (
	"context"

	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

var _ tinker.Stepper = (*model)(nil)

// Step implements [tinker.Stepper]: it submits the whole batch and the optimizer step before it waits for the first result, as the Tinker
// cookbook does. A lost answer is ErrInDoubt, and so is a batch that fails, because the step may run all the same. Engines that
// average over the data get one call after the other.
func (m *model) Step(ctx context.Context, p tinker.ForwardParams, adam tinker.AdamParams) (res tinker.ForwardResult, step tinker.OptimStepResult, err error) {
	if m.server.engine.Normalization == engines.DatumMean {
		if res, err = m.ForwardBackward(ctx, p); err == nil {
			step, err = m.OptimStep(ctx, adam)
		}
		return res, step, err
	}
	if p, err = m.checked(p); err != nil {
		return res, step, err
	}
	if err := adam.Validate(); err != nil {
		return res, step, err
	}
	const calls = 2
	err = m.run(ctx, calls*m.cfg.CallTimeout, steps, func(ctx context.Context) error {
		res, step, err = m.queue(ctx, p, adam)
		return err
	})
	return res, step, err
}

func (m *model) queue(ctx context.Context, p tinker.ForwardParams, adam tinker.AdamParams) (res tinker.ForwardResult, step tinker.OptimStepResult, err error) {
	chunks := divide(p.Data, m.server.chunkData, m.server.chunkBytes)
	begun := make([]submitted, len(chunks))
	for i, data := range chunks {
		if begun[i], err = m.beginChunk(ctx, tinker.ForwardParams{Data: data, Loss: p.Loss}, accumulates); err != nil {
			if i > 0 || begun[i].inDoubt {
				err = m.doubtful(wire.ForwardBackward, err)
			}
			return res, step, err
		}
		begun[i].followed = true
	}
	last, refused := m.beginCall(ctx, steps, wire.OptimStep, m.optimRequest(adam))
	if refused != nil && last.inDoubt {
		return res, step, m.doubtful(wire.OptimStep, refused)
	}
	parts := make([]tinker.ForwardResult, len(chunks))
	for i, data := range chunks {
		o, err := m.finish(ctx, begun[i], nil)
		if err == nil {
			m.gradient = true
			parts[i], err = readForward(o, tinker.ForwardParams{Data: data, Loss: p.Loss})
		}
		if err != nil {
			return res, step, m.doubtful(wire.ForwardBackward, err)
		}
	}
	res = merge(parts)
	step, err = m.stepped(m.finish(ctx, last, refused))
	return res, step, err
}
