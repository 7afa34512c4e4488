package client

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

// model is one model in training. Its calls are made one at a time, each to its end, so that submits are in order.
type model struct {
	*transport

	server *server
	id     string
	spec   tinker.ModelSpec
	slots  *slots
	slot   *slot               // nil where snapshots are immutable
	turn   *semaphore.Weighted // of size 1

	// The holder of the turn owns what follows.
	seq      int64 // sequence id of the next call, from 1
	seqTaken bool  // the server may have accepted a call with that id already
	step     int64
	gradient bool  // there may be a gradient that no step has applied
	doubt    error // why the state is unknown, or nil
	unloaded bool
}

func newModel(t *transport, s *server, all *slots, id string, spec tinker.ModelSpec) *model {
	m := &model{transport: t, server: s, id: id, spec: spec, slots: all, turn: semaphore.NewWeighted(1), seq: 1}
	if !s.engine.ImmutableSnapshots {
		m.slot = newSlot()
	}
	return m
}

// effect is what a call does to the model's state.
type effect int

const (
	reads       effect = iota // nothing
	accumulates               // adds to the gradient
	steps                     // changes weights, and not to the same ones if it runs twice
	replaces                  // sets the whole state, whatever it was
	ends                      // unloads the model; nobody waits long for that
)

// repeatable reports whether a call may run twice, whatever the state was.
func (e effect) repeatable() bool { return e == replaces || e == ends }

// A model that is not unloaded ends with its session.
const (
	unloadTimeout  = 30 * time.Second // of an unload, with the calls before it
	unloadRetryFor = 5 * time.Second  // of each of its requests
)

// run runs do while no other call of the model runs. timeout bounds both the wait for its turn and do.
func (m *model) run(ctx context.Context, timeout time.Duration, what effect, do func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := m.turn.Acquire(ctx, 1); err != nil {
		return err
	}
	defer m.turn.Release(1)
	if m.unloaded {
		return agl.Errorf(agl.CodeNotFound, "client: model %s is unloaded", m.id)
	}
	if m.doubt != nil && !what.repeatable() {
		return agl.Errorf(agl.CodeIllegalState, "client: model %s: %w", m.id, m.doubt)
	}
	if m.slot != nil && what != reads {
		if err := m.slots.beginTraining(ctx, m.slot); err != nil {
			return err
		}
		defer m.slots.endTraining(m.slot, what != accumulates)
	}
	return do(ctx)
}

// doubtful records that a call may have run.
func (m *model) doubtful(path string, cause error) error {
	m.doubt = errors.Join(ErrInDoubt, cause)
	return agl.Errorf(agl.CodeIllegalState, "client: %s may or may not have run; load a checkpoint to continue: %w", path, m.doubt)
}

// inOrder submits a call with the next sequence id.
func (m *model) inOrder(what effect, submit func(seq int64, repeatable bool) (submitted, error)) (submitted, error) {
	repeatable := m.server.engine.Idempotent || what.repeatable()
	seq := m.seq
	c, err := submit(seq, repeatable)
	if errors.Is(err, agl.ErrConflict) && !c.taken && (m.seqTaken || (c.inDoubt && what.repeatable())) {
		// A call whose answer was lost has this id: the next one is free.
		if next, nextErr := submit(seq+1, repeatable); !errors.Is(nextErr, agl.ErrConflict) {
			seq, c, err = seq+1, next, nextErr
		}
	}
	if c.taken {
		m.seq, m.seqTaken = seq+1, false
	} else if c.inDoubt {
		m.seqTaken = true
	}
	return c, err
}

// call submits the message that build makes for a sequence id, and waits for the result.
func (m *model) call(ctx context.Context, what effect, path string, build func(seq *int64) any) (outcome, error) {
	c, err := m.beginCall(ctx, what, path, build)
	return m.finish(ctx, c, err)
}

func (m *model) beginCall(ctx context.Context, what effect, path string, build func(seq *int64) any) (submitted, error) {
	return m.inOrder(what, func(seq int64, repeatable bool) (submitted, error) {
		r := request{path: path, message: build(&seq), repeatable: repeatable}
		if what == ends {
			r.retryFor = unloadRetryFor
		}
		return m.begin(ctx, r)
	})
}

// Info implements [tinker.TrainingClient]. Where the server does not say the step, it is the number of steps that this
// client has made since the model was created or loaded.
func (m *model) Info(ctx context.Context) (info tinker.Info, err error) {
	err = m.run(ctx, m.cfg.CallTimeout, reads, func(ctx context.Context) error {
		var said wire.GetInfoResponse
		if err := m.ask(ctx, request{path: wire.GetInfo, message: wire.ModelRequest{ModelID: m.id, Type: "get_info"}}, &said); err != nil {
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

func (m *model) Forward(ctx context.Context, p tinker.ForwardParams) (res tinker.ForwardResult, err error) {
	return m.forward(ctx, p, reads)
}

// ForwardBackward implements [tinker.TrainingClient]. A lost answer is ErrInDoubt.
func (m *model) ForwardBackward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	return m.forward(ctx, p, accumulates)
}

func (m *model) forward(ctx context.Context, p tinker.ForwardParams, what effect) (res tinker.ForwardResult, err error) {
	if p, err = m.checked(p); err != nil {
		return res, err
	}
	err = m.run(ctx, m.cfg.CallTimeout, what, func(ctx context.Context) error {
		pass := func(what effect) pass {
			return func(p tinker.ForwardParams) (tinker.ForwardResult, error) { return m.batch(ctx, p, what) }
		}
		switch {
		case what == reads || m.server.engine.Normalization != engines.DatumMean:
			res, err = pass(what)(p)
		case m.gradient:
			err = agl.Errorf(agl.CodeIllegalState, "client: this engine averages losses over all data since the last step; it allows one ForwardBackward for each OptimStep")
		default:
			res, err = summed(m.server.engine, p, pass(reads), pass(what))
		}
		return err
	})
	if err != nil {
		return tinker.ForwardResult{}, err
	}
	return res, nil
}

// checked returns the batch in the form that the engine takes.
func (m *model) checked(p tinker.ForwardParams) (tinker.ForwardParams, error) {
	// Some engines spoil every model that they hold on bad data.
	if err := p.Validate(m.spec); err != nil {
		return p, invalid("%w", err)
	}
	if !slices.Contains(m.server.engine.Losses, p.Loss.Name) {
		return p, invalid("loss: this engine has no %q; it has %q", p.Loss.Name, m.server.engine.Losses)
	}
	if m.server.engine.AdvantagesOnly {
		p = folded(p)
	}
	return p, nil
}

// batch sends a batch as it is, in as many requests as it takes.
func (m *model) batch(ctx context.Context, p tinker.ForwardParams, what effect) (tinker.ForwardResult, error) {
	var parts []tinker.ForwardResult
	for _, data := range divide(p.Data, m.server.chunkData, m.server.chunkBytes) {
		part, err := m.chunk(ctx, tinker.ForwardParams{Data: data, Loss: p.Loss}, what)
		if err != nil && what == accumulates && len(parts) > 0 && m.doubt == nil {
			// A part of the batch is in the gradient already.
			return tinker.ForwardResult{}, m.doubtful(wire.ForwardBackward, err)
		}
		if err != nil {
			return tinker.ForwardResult{}, err
		}
		parts = append(parts, part)
	}
	return merge(parts), nil
}

// chunk sends one request of a batch and waits for its result.
func (m *model) chunk(ctx context.Context, p tinker.ForwardParams, what effect) (tinker.ForwardResult, error) {
	c, err := m.beginChunk(ctx, p, what)
	o, err := m.finish(ctx, c, err)
	switch {
	case err != nil && o.inDoubt && what == accumulates:
		return tinker.ForwardResult{}, m.doubtful(wire.ForwardBackward, err)
	case err != nil:
		return tinker.ForwardResult{}, err
	}
	if what == accumulates {
		m.gradient = true
	}
	res, err := readForward(o, p)
	if err != nil && what == accumulates {
		return res, m.doubtful(wire.ForwardBackward, err) // there is a gradient, of an unknown loss
	}
	return res, err
}

// beginChunk submits one request of a batch.
func (m *model) beginChunk(ctx context.Context, p tinker.ForwardParams, what effect) (submitted, error) {
	return m.inOrder(what, func(seq int64, repeatable bool) (submitted, error) {
		f := wire.ForwardRequest{ModelID: m.id, SeqID: &seq, Params: p, ForwardOnly: what == reads}
		return m.beginForward(ctx, m.server, f, repeatable || what == reads)
	})
}

func readForward(o outcome, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	res, err := wire.DecodeForwardResult(o.media, o.body, p)
	if err != nil {
		return res, agl.Errorf(agl.CodeInternal, "client: %w", err)
	}
	return res, nil
}

// OptimStep implements [tinker.TrainingClient]. A lost answer is ErrInDoubt.
func (m *model) OptimStep(ctx context.Context, p tinker.AdamParams) (res tinker.OptimStepResult, err error) {
	if err := p.Validate(); err != nil {
		return res, err
	}
	err = m.run(ctx, m.cfg.CallTimeout, steps, func(ctx context.Context) error {
		res, err = m.stepped(m.call(ctx, steps, wire.OptimStep, m.optimRequest(p)))
		return err
	})
	return res, err
}

// stepped records the end of an optim_step.
func (m *model) stepped(o outcome, err error) (res tinker.OptimStepResult, _ error) {
	switch {
	case err != nil && o.inDoubt:
		return res, m.doubtful(wire.OptimStep, err)
	case err != nil:
		return res, err
	}
	m.gradient = false
	m.step++
	var out wire.OptimStepResult
	if err := o.read(wire.OptimStep, &out); err != nil {
		return res, m.doubtful(wire.OptimStep, err)
	}
	res = out.Result(m.step)
	m.step = res.Step
	return res, nil
}

func (m *model) optimRequest(p tinker.AdamParams) func(seq *int64) any {
	return func(seq *int64) any {
		return wire.OptimStepRequest{ModelID: m.id, SeqID: seq, Type: "optim_step", AdamParams: wire.FromAdam(p)}
	}
}

// dropGradient clears a gradient that may be there, on engines where it outlives a load and even its model. It makes a
// step with learning rate 0, which changes the optimizer's state: the caller is about to replace that.
func (m *model) dropGradient(ctx context.Context, what effect) error {
	if m.server.engine.LoadDiscardsGradient || (!m.gradient && m.doubt == nil) {
		return nil
	}
	// Two such steps do no more harm than one.
	if _, err := m.call(ctx, what, wire.OptimStep, m.optimRequest(tinker.AdamParams{})); err != nil {
		return err
	}
	m.gradient = false
	return nil
}

// SaveWeights implements [tinker.TrainingClient]. A lost answer, on a server that may run a repeat twice, is an error
// that leaves the model as it is; the name may be taken then.
func (m *model) SaveWeights(ctx context.Context, p tinker.SaveWeightsParams) (path string, err error) {
	return m.save(ctx, wire.SaveWeights, p, func(tinker.Path) {})
}

// SaveWeightsForSampler implements [tinker.TrainingClient]. Lost answers are as in SaveWeights.
func (m *model) SaveWeightsForSampler(ctx context.Context, p tinker.SaveWeightsParams) (path string, err error) {
	return m.save(ctx, wire.SaveWeightsForSampler, p, func(saved tinker.Path) {
		if m.slot != nil {
			m.slots.publish(m.slot, saved)
		}
	})
}

func (m *model) save(ctx context.Context, call string, p tinker.SaveWeightsParams, saved func(tinker.Path)) (path string, err error) {
	if err := tinker.ValidateName(p.Name); err != nil {
		return "", err
	}
	err = m.run(ctx, m.cfg.CallTimeout, reads, func(ctx context.Context) error {
		o, err := m.call(ctx, reads, call, func(seq *int64) any {
			return wire.SaveWeightsRequest{ModelID: m.id, SeqID: seq, Path: p.Name, Overwrite: p.Overwrite, Type: strings.TrimPrefix(call, "/")}
		})
		if err != nil {
			return err
		}
		var out wire.SaveWeightsResult
		if err := o.read(call, &out); err != nil {
			return err
		}
		if out.Path == nil {
			return agl.Errorf(agl.CodeInternal, "client: %s: the result has no path", call)
		}
		parsed, err := tinker.ParsePath(*out.Path)
		if err != nil {
			return agl.Errorf(agl.CodeInternal, "client: %s: %w", call, err)
		}
		path = *out.Path
		saved(parsed)
		return nil
	})
	return path, err
}

// LoadWeights implements [tinker.TrainingClient]. The state of a model in doubt is known again afterwards.
func (m *model) LoadWeights(ctx context.Context, p tinker.LoadWeightsParams) error {
	if _, err := p.Checkpoint(); err != nil {
		return invalid("%w", err)
	}
	return m.run(ctx, m.cfg.CallTimeout, replaces, func(ctx context.Context) error {
		dropped := m.gradient && !m.server.engine.LoadDiscardsGradient
		if err := m.dropGradient(ctx, replaces); err != nil {
			return err
		}
		o, err := m.call(ctx, replaces, wire.LoadWeights, func(seq *int64) any {
			return wire.LoadWeightsRequest{ModelID: m.id, SeqID: seq, Path: p.Path, Optimizer: p.WithOptimizer, Type: "load_weights"}
		})
		if err != nil {
			if o.inDoubt || dropped {
				return m.doubtful(wire.LoadWeights, err)
			}
			return err
		}
		m.doubt, m.gradient, m.step = nil, false, 0
		return nil
	})
}

func (m *model) Unload(ctx context.Context) error {
	return m.run(ctx, m.cfg.CallTimeout, ends, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeoutCause(ctx, unloadTimeout, agl.Errorf(agl.CodeUnavailable, "the model is not unloaded after %s", unloadTimeout))
		defer cancel()
		if err := m.dropGradient(ctx, ends); err != nil {
			return cmp.Or(context.Cause(ctx), err)
		}
		o, err := m.submit(ctx, request{
			path: wire.UnloadModel, message: wire.ModelRequest{ModelID: m.id, Type: "unload_model"}, repeatable: true, retryFor: unloadRetryFor,
		})
		gone := o.inDoubt && errors.Is(err, agl.ErrNotFound) // an earlier try, whose answer was lost, unloaded it
		if err != nil && !gone {
			return cmp.Or(context.Cause(ctx), err)
		}
		m.unloaded = true
		m.slots.remove(m.slot)
		return nil
	})
}
