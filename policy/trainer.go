package policy

import (
	"context"
	"math"
	"sync"
	"sync/atomic"

	"github.com/agl-go/agl/tinker"
)

const (
	// shardCount is the number of shards of every batch, for any number of workers. Each shard has its own gradient; the
	// gradients are added in order.
	shardCount = 4
	// chunkRows is the number of tokens in one pass: their activations fit into the cache of a core.
	chunkRows = 160
)

// trainer holds the training state of one model. It is not safe for concurrent use.
type trainer struct {
	w       *weights
	kn      kernel
	workers int

	grad   []float32 // accumulated gradient
	m, v   []float32 // Adam's moments
	step   int64
	decay1 float64 // beta1^step, as a running product
	decay2 float64

	shards [shardCount][]float32
	spaces []*trainSpace // one per worker
}

func newTrainer(cfg Config, l *layout, flat []float32) *trainer {
	t := &trainer{
		w: newWeights(l, flat), kn: cfg.kernel(),
		workers: min(cfg.Workers, shardCount),
		grad:    make([]float32, l.size), m: make([]float32, l.size), v: make([]float32, l.size),
		decay1: 1, decay2: 1,
	}
	t.w.repackBackward()
	for i := range t.shards {
		t.shards[i] = make([]float32, l.size)
	}
	for range t.workers {
		t.spaces = append(t.spaces, newTrainSpace(l, t.kn, max(chunkRows, l.Context)))
	}
	return t
}

// forward runs a validated batch and, if withGrad is set, adds its gradient to the accumulated one. A
// cancelled call leaves the accumulated gradient as it was.
func (t *trainer) forward(ctx context.Context, data []tinker.Datum, loss tinker.Loss, withGrad bool) (tinker.ForwardResult, error) {
	res := tinker.ForwardResult{Logprobs: make([][]float32, len(data)), Losses: make([][]float32, len(data))}
	for i := range data {
		res.Logprobs[i] = make([]float32, len(data[i].Targets))
		res.Losses[i] = make([]float32, len(data[i].Targets))
	}
	t.parallel(func(ws *trainSpace, shard int) {
		t.runShard(ctx, ws, shard, data, loss, &res, withGrad)
	})
	if err := ctx.Err(); err != nil {
		return tinker.ForwardResult{}, err
	}
	if withGrad {
		for _, s := range t.shards[:min(shardCount, len(data))] {
			addTo(t.grad, s)
		}
	}
	for _, losses := range res.Losses {
		for _, v := range losses {
			res.Loss += float64(v)
		}
	}
	return res, nil
}

// parallel calls do once per shard, from up to t.workers goroutines with a workspace each, and waits for them.
func (t *trainer) parallel(do func(ws *trainSpace, shard int)) {
	var next atomic.Int32
	var wg sync.WaitGroup
	for _, ws := range t.spaces {
		wg.Go(func() {
			for s := int(next.Add(1)) - 1; s < shardCount; s = int(next.Add(1)) - 1 {
				do(ws, s)
			}
		})
	}
	wg.Wait()
}

// runShard processes data shard, shard+shardCount, …, in chunks of up to chunkRows tokens.
func (t *trainer) runShard(ctx context.Context, ws *trainSpace, shard int, data []tinker.Datum, loss tinker.Loss, res *tinker.ForwardResult, withGrad bool) {
	if shard >= len(data) {
		return
	}
	grad := t.shards[shard]
	if withGrad {
		clear(grad)
	}
	var segs []segment
	var members []int
	var ids []int32
	flush := func() {
		ws.forward(t.w, segs, ids, 0)
		for j, s := range segs {
			i := members[j]
			ws.lossRows(s, &data[i], loss, res.Logprobs[i], res.Losses[i], withGrad)
		}
		if withGrad {
			ws.backward(t.w, segs, ids, grad)
		}
		segs, members, ids = segs[:0], members[:0], ids[:0]
	}
	for i := shard; i < len(data); i += shardCount {
		if len(ids) > 0 && len(ids)+len(data[i].Input) > chunkRows {
			if ctx.Err() != nil {
				return
			}
			flush()
		}
		segs = append(segs, segment{row: len(ids), n: len(data[i].Input)})
		members = append(members, i)
		ids = append(ids, data[i].Input...)
	}
	if ctx.Err() == nil {
		flush()
	}
}

// adam takes one step with the accumulated gradient and clears it. A gradient that is not finite is an error: it is
// cleared and changes nothing.
func (t *trainer) adam(p tinker.AdamParams) (norm float64, err error) {
	p = p.WithDefaults()
	norm = gradNorm(t.grad)
	if math.IsNaN(norm) || math.IsInf(norm, 0) {
		clear(t.grad)
		return norm, invalid("optim_step: %w: the gradient is not finite (norm %v) and was dropped; begin a new run with a smaller learning rate", tinker.ErrUseless, norm)
	}
	scale := 1.0
	if p.GradClipNorm > 0 && norm > p.GradClipNorm {
		scale = p.GradClipNorm / norm
	}
	t.step++
	t.decay1 = float64(t.decay1 * p.Beta1)
	t.decay2 = float64(t.decay2 * p.Beta2)
	a := adamStep{
		scale: float32(scale),
		beta1: float32(p.Beta1), rest1: float32(1 - p.Beta1),
		beta2: float32(p.Beta2), rest2: float32(1 - p.Beta2),
		rate:  float32(p.LearningRate / (1 - t.decay1)),
		root:  float32(1 / math.Sqrt(1-t.decay2)),
		eps:   float32(p.Eps),
		decay: float32(p.LearningRate * p.WeightDecay),
	}
	part := (len(t.grad) + shardCount - 1) / shardCount
	t.parallel(func(_ *trainSpace, shard int) {
		lo, hi := shard*part, min((shard+1)*part, len(t.grad))
		a.apply(t.w.flat[lo:hi], t.grad[lo:hi], t.m[lo:hi], t.v[lo:hi])
	})
	t.w.repackForward()
	t.w.repackBackward()
	return norm, nil
}

// adamStep holds the constants of one step, including bias correction: w −= rate·m/(root·√v + eps) + decay·w.
type adamStep struct {
	scale, beta1, rest1, beta2, rest2, rate, root, eps, decay float32
}

func (a adamStep) apply(w, g, m, v []float32) {
	g, m, v = g[:len(w)], m[:len(w)], v[:len(w)]
	for i, x := range g {
		x *= a.scale
		mi := float32(a.beta1*m[i]) + float32(a.rest1*x)
		vi := float32(a.beta2*v[i]) + float32(float32(a.rest2*x)*x)
		m[i], v[i], g[i] = mi, vi, 0
		w[i] -= float32(a.rate*mi)/(float32(a.root*sqrt32(vi))+a.eps) + float32(a.decay*w[i])
	}
}

// gradNorm is the L2 norm of an even number of elements, accumulated in float64 in a fixed order.
func gradNorm(g []float32) float64 {
	var s0, s1 float64
	for ; len(g) >= 2; g = g[2:] {
		a, b := float64(g[0]), float64(g[1])
		s0 += float64(a * a)
		s1 += float64(b * b)
	}
	return math.Sqrt(s0 + s1)
}

// encode encodes the trainer's state without the accumulated gradient.
func (t *trainer) encode() []byte {
	return encodeCheckpoint(checkpointHeader{Shape: t.w.shape, Step: t.step, Decay1: t.decay1, Decay2: t.decay2}, t.w.flat, t.m, t.v)
}

// restore replaces the trainer's state and drops the accumulated gradient.
func (t *trainer) restore(c checkpoint, withOptimizer bool) {
	copy(t.w.flat, c.flat)
	clear(t.grad)
	if withOptimizer {
		copy(t.m, c.m)
		copy(t.v, c.v)
		t.step, t.decay1, t.decay2 = c.Step, c.Decay1, c.Decay2
	} else {
		clear(t.m)
		clear(t.v)
		t.step, t.decay1, t.decay2 = 0, 1, 1
	}
	t.w.repackForward()
	t.w.repackBackward()
}
