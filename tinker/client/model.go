package client

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// model is one model in training. Its calls take turns, each to its end, so that submits are in order.
type model struct {
	client *Client
	server *server
	id     string
	spec   tinker.ModelSpec
	gate   *gate // nil where snapshots are immutable
	turn   chan struct{}

	// The rest belongs to who holds the turn.
	seq      int64 // of the next call, from 1
	unsure   bool  // whether the server took seq already
	step     int64
	gradient bool  // there may be an unstepped gradient
	doubt    error // why the state is unknown, or nil
	unloaded bool
}

func newModel(c *Client, s *server, id string, spec tinker.ModelSpec) *model {
	m := &model{client: c, server: s, id: id, spec: spec, turn: make(chan struct{}, 1), seq: 1}
	if !s.engine.ImmutableSnapshots {
		m.gate = newGate()
	}
	return m
}

// effect is what a call does to the model's state.
type effect int

const (
	reads      effect = iota // nothing
	accumulate               // it adds to the gradient
	steps                    // it changes weights, and not the same way twice
	replaces                 // it changes the whole state to what is given, whatever it was
	ends                     // the same, of a model that is given up: nobody waits long for it
)

// whole reports whether a call gives the model a state that is known, whatever it was.
func (e effect) whole() bool { return e == replaces || e == ends }

// run gives do the model, alone, with a bound in time.
func (m *model) run(ctx context.Context, what effect, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, m.client.cfg.CallTimeout)
	defer cancel()
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-m.turn }()
	if err := ctx.Err(); err != nil {
		return err
	}
	if m.unloaded {
		return agl.Errorf(agl.CodeNotFound, "client: model %s is unloaded", m.id)
	}
	if m.doubt != nil && !what.whole() {
		return agl.Errorf(agl.CodeIllegalState, "client: model %s: %w", m.id, m.doubt)
	}
	if m.gate != nil && what != reads {
		if err := m.gate.beginTraining(ctx); err != nil {
			return err
		}
		defer m.gate.endTraining(what != accumulate)
	}
	return do(ctx)
}

// doubtful records that a call may have run.
func (m *model) doubtful(path string, cause error) error {
	m.doubt = errors.Join(ErrInDoubt, cause)
	return agl.Errorf(agl.CodeIllegalState, "client: %s may have run or not; load a checkpoint to go on: %w", path, m.doubt)
}

// send submits a call with the next sequence id.
func (m *model) send(what effect, submit func(seq int64, repeat bool) (rep reply, taken, inDoubt bool, err error)) (rep reply, inDoubt bool, err error) {
	repeat := m.server.engine.Idempotent || what.whole()
	seq := m.seq
	rep, taken, inDoubt, err := submit(seq, repeat)
	if errors.Is(err, agl.ErrConflict) && !taken && (m.unsure || (inDoubt && what.whole())) {
		// A call that was lost on the way back has this id: the next one is free.
		next, took, doubt, nextErr := submit(seq+1, repeat)
		if !errors.Is(nextErr, agl.ErrConflict) {
			seq, rep, taken, inDoubt, err = seq+1, next, took, doubt, nextErr
		}
	}
	if taken {
		m.seq, m.unsure = seq+1, false
	} else if inDoubt {
		m.unsure = true
	}
	return rep, inDoubt, err
}

// call submits a message, which build makes for a sequence id.
func (m *model) call(ctx context.Context, what effect, path string, build func(seq *int64) any) (rep reply, inDoubt bool, err error) {
	return m.send(what, func(seq int64, repeat bool) (reply, bool, bool, error) {
		r, err := post(path, build(&seq))
		if err != nil {
			return reply{}, false, false, err
		}
		r.repeat = repeat
		if what == ends {
			r.budget = farewell
		}
		return m.client.submit(ctx, r)
	})
}

// Info implements [tinker.TrainingClient]. Where the server does not say the step, it is the number of steps of
// this client since the model was made or loaded.
func (m *model) Info(ctx context.Context) (info tinker.Info, err error) {
	err = m.run(ctx, reads, func(ctx context.Context) error {
		r, err := post(wire.GetInfo, wire.ModelRequest{ModelID: m.id, Type: "get_info"})
		if err != nil {
			return err
		}
		var said wire.GetInfoResponse
		if err := m.client.ask(ctx, r, &said); err != nil {
			return err
		}
		info = tinker.Info{ModelID: m.id, Spec: m.spec, Step: m.step, Parameters: said.Parameters}
		if said.Step != nil {
			info.Step = *said.Step
		}
		return nil
	})
	return info, err
}

// Forward implements [tinker.TrainingClient].
func (m *model) Forward(ctx context.Context, p tinker.ForwardParams) (res tinker.ForwardResult, err error) {
	return m.forward(ctx, p, reads)
}

// ForwardBackward implements [tinker.TrainingClient]. An answer that is lost is ErrInDoubt.
func (m *model) ForwardBackward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	return m.forward(ctx, p, accumulate)
}

func (m *model) forward(ctx context.Context, p tinker.ForwardParams, what effect) (res tinker.ForwardResult, err error) {
	if err := m.validate(p); err != nil {
		return res, err
	}
	err = m.run(ctx, what, func(ctx context.Context) error {
		pass := m.pass
		if m.server.engine.Normalization == DatumMean && what == accumulate {
			pass = m.summed
		}
		res, err = pass(ctx, p, what)
		return err
	})
	if err != nil {
		return tinker.ForwardResult{}, err
	}
	return res, nil
}

// pass sends a batch as it is, in as many requests as it takes.
func (m *model) pass(ctx context.Context, p tinker.ForwardParams, what effect) (tinker.ForwardResult, error) {
	var parts []tinker.ForwardResult
	for _, chunk := range m.server.chunks(p.Data) {
		part, err := m.chunk(ctx, tinker.ForwardParams{Data: chunk, Loss: p.Loss}, what)
		if err != nil && what == accumulate && len(parts) > 0 && m.doubt == nil {
			// A part of the batch is in the gradient.
			return tinker.ForwardResult{}, m.doubtful(wire.ForwardBackward, err)
		}
		if err != nil {
			return tinker.ForwardResult{}, err
		}
		parts = append(parts, part)
	}
	return merge(parts), nil
}

func (m *model) chunk(ctx context.Context, p tinker.ForwardParams, what effect) (tinker.ForwardResult, error) {
	input := wire.FromForward(p)
	rep, inDoubt, err := m.send(what, func(seq int64, repeat bool) (reply, bool, bool, error) {
		f := wire.ForwardRequest{ModelID: m.id, SeqID: &seq, Input: input, ForwardOnly: what == reads}
		return m.client.submitForward(ctx, m.server, f, repeat || what == reads)
	})
	switch {
	case err != nil && inDoubt && what == accumulate:
		return tinker.ForwardResult{}, m.doubtful(wire.ForwardBackward, err)
	case err != nil:
		return tinker.ForwardResult{}, err
	}
	if what == accumulate {
		m.gradient = true
	}
	res, err := forwardResult(rep, p)
	if err != nil && what == accumulate {
		// The gradient is there and what it is of is unreadable.
		return res, m.doubtful(wire.ForwardBackward, err)
	}
	return res, err
}

// validate finds what is wrong before it is sent: some engines spoil every model they hold on bad data.
func (m *model) validate(p tinker.ForwardParams) error {
	if err := p.Loss.Validate(); err != nil {
		return err
	}
	if !slices.Contains(m.server.engine.Losses, p.Loss.Name) {
		return invalid("loss: this engine has no %q; it has %q", p.Loss.Name, m.server.engine.Losses)
	}
	if len(p.Data) == 0 {
		return invalid("data: the batch is empty; at least 1 datum is needed")
	}
	for i := range p.Data {
		d := &p.Data[i]
		if err := d.Validate(p.Loss.Name, m.spec.Vocab); err != nil {
			return invalid("data[%d]: %w", i, err)
		}
		if n := m.spec.Context; n > 0 && len(d.Input) > n {
			return invalid("data[%d]: input: %d tokens; the context has %d", i, len(d.Input), n)
		}
	}
	return nil
}

// OptimStep implements [tinker.TrainingClient]. An answer that is lost is ErrInDoubt.
func (m *model) OptimStep(ctx context.Context, p tinker.AdamParams) (res tinker.OptimStepResult, err error) {
	if err := p.Validate(); err != nil {
		return res, err
	}
	err = m.run(ctx, steps, func(ctx context.Context) error {
		rep, inDoubt, err := m.optimStep(ctx, steps, p)
		if err != nil {
			if inDoubt {
				return m.doubtful(wire.OptimStep, err)
			}
			return err
		}
		m.gradient = false
		m.step++
		var out wire.OptimStepResult
		if err := rep.read(wire.OptimStep, &out); err != nil {
			return m.doubtful(wire.OptimStep, err)
		}
		res = tinker.OptimStepResult{Step: m.step, Metrics: maps.Clone(out.Metrics)}
		// Engines put their own name in front: skyrl.ai/grad_norm.
		for name, v := range out.Metrics {
			switch name[strings.LastIndexByte(name, '/')+1:] {
			case "grad_norm":
				res.GradNorm = v
			case "step":
				m.step = int64(v)
				res.Step = m.step
			}
		}
		return nil
	})
	return res, err
}

func (m *model) optimStep(ctx context.Context, what effect, p tinker.AdamParams) (reply, bool, error) {
	p = p.WithDefaults()
	return m.call(ctx, what, wire.OptimStep, func(seq *int64) any {
		return wire.OptimStepRequest{ModelID: m.id, SeqID: seq, Type: "optim_step", AdamParams: wire.AdamParams{
			LearningRate: &p.LearningRate, Beta1: &p.Beta1, Beta2: &p.Beta2, Eps: &p.Eps,
			WeightDecay: p.WeightDecay, GradClipNorm: p.GradClipNorm,
		}}
	})
}

// dropGradient clears a gradient that may be there, on engines where it outlives a load and even its model. A
// step with learning rate 0 changes the optimizer's state, so that it is for those who give it up.
func (m *model) dropGradient(ctx context.Context, what effect) error {
	if m.server.engine.LoadDiscardsGradient || (!m.gradient && m.doubt == nil) {
		return nil
	}
	// Two such steps in place of one do no harm either.
	if _, _, err := m.optimStep(ctx, what, tinker.AdamParams{}); err != nil {
		return err
	}
	m.gradient = false
	return nil
}

// SaveWeights implements [tinker.TrainingClient]. A lost answer, where the server may run a repeat twice, is an
// error that leaves the model as it is; the name may be taken then.
func (m *model) SaveWeights(ctx context.Context, p tinker.SaveWeightsParams) (path string, err error) {
	if err := tinker.ValidateName(p.Name); err != nil {
		return "", err
	}
	err = m.run(ctx, reads, func(ctx context.Context) error {
		path, err = m.save(ctx, wire.SaveWeights, p)
		return err
	})
	return path, err
}

// SaveWeightsForSampler implements [tinker.TrainingClient]. Lost answers are as in SaveWeights.
func (m *model) SaveWeightsForSampler(ctx context.Context, p tinker.SaveWeightsParams) (path string, err error) {
	if err := tinker.ValidateName(p.Name); err != nil {
		return "", err
	}
	err = m.run(ctx, reads, func(ctx context.Context) error {
		if path, err = m.save(ctx, wire.SaveWeightsForSampler, p); err != nil || m.gate == nil {
			return err
		}
		snapshot, err := tinker.ParsePath(path)
		if err != nil {
			return err
		}
		m.gate.publish(snapshot.String())
		m.client.mu.Lock()
		defer m.client.mu.Unlock()
		m.client.live[snapshot.Model] = m
		return nil
	})
	return path, err
}

func (m *model) save(ctx context.Context, path string, p tinker.SaveWeightsParams) (string, error) {
	rep, _, err := m.call(ctx, reads, path, func(seq *int64) any {
		return wire.SaveWeightsRequest{ModelID: m.id, SeqID: seq, Path: p.Name, Overwrite: p.Overwrite, Type: strings.TrimPrefix(path, "/")}
	})
	if err != nil {
		return "", err
	}
	var out wire.SaveWeightsResult
	if err := rep.read(path, &out); err != nil {
		return "", err
	}
	if out.Path == nil {
		return "", agl.Errorf(agl.CodeInternal, "client: %s: the result has no path", path)
	}
	if _, err := tinker.ParsePath(*out.Path); err != nil {
		return "", agl.Errorf(agl.CodeInternal, "client: %s: %w", path, err)
	}
	return *out.Path, nil
}

// LoadWeights implements [tinker.TrainingClient]. It makes a model that was in doubt known again.
func (m *model) LoadWeights(ctx context.Context, p tinker.LoadWeightsParams) error {
	path, err := tinker.ParsePath(p.Path)
	if err != nil {
		return err
	}
	if path.Kind != tinker.KindCheckpoint {
		return invalid("path: %q is a sampler snapshot; only %s paths can be loaded for training", p.Path, tinker.KindCheckpoint)
	}
	return m.run(ctx, replaces, func(ctx context.Context) error {
		dropped := m.gradient && !m.server.engine.LoadDiscardsGradient
		if err := m.dropGradient(ctx, replaces); err != nil {
			return err
		}
		_, inDoubt, err := m.call(ctx, replaces, wire.LoadWeights, func(seq *int64) any {
			return wire.LoadWeightsRequest{ModelID: m.id, SeqID: seq, Path: p.Path, Optimizer: p.WithOptimizer, Type: "load_weights"}
		})
		if err != nil {
			if inDoubt || dropped {
				return m.doubtful(wire.LoadWeights, err)
			}
			return err
		}
		m.doubt, m.gradient, m.step = nil, false, 0
		return nil
	})
}

// Unload implements [tinker.TrainingClient].
func (m *model) Unload(ctx context.Context) error {
	return m.run(ctx, ends, func(ctx context.Context) error {
		if err := m.dropGradient(ctx, ends); err != nil {
			return err
		}
		r, err := post(wire.UnloadModel, wire.ModelRequest{ModelID: m.id, Type: "unload_model"})
		if err != nil {
			return err
		}
		r.repeat, r.budget = true, farewell
		_, _, inDoubt, err := m.client.submit(ctx, r)
		gone := inDoubt && errors.Is(err, agl.ErrNotFound) // by the try before, whose answer was lost
		if err != nil && !gone {
			return err
		}
		m.unloaded = true
		m.client.forget(m)
		return nil
	})
}

func (c *Client) forget(m *model) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.live, func(_ string, of *model) bool { return of == m })
}
