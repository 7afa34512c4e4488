package policy

import (
	"fmt"
	"math"
	"math/rand/v2"
)

// tensor is a row-major matrix inside the flat vector of parameters.
type tensor struct {
	name            string
	rows, cols, off int
}

// in returns the tensor's part of a vector in the layout's order: parameters, gradient or a moment.
func (t tensor) in(flat []float32) []float32 { return flat[t.off : t.off+t.rows*t.cols] }

// blockLayout has the tensors of one transformer block.
type blockLayout struct {
	norm1, qkv, out, norm2, up, down tensor
}

// layout places every tensor of a shape in one flat vector. There are no biases.
type layout struct {
	shape
	embed, pos  tensor
	blocks      []blockLayout
	norm, head  tensor
	size        int
	allTensors  []tensor
	packedSize  int // floats of all packed matrices, one direction
	kvPerLayer  int // floats of one layer's key (or value) cache
	contextCols int // Context rounded up to whole panels
}

func newLayout(s shape) *layout {
	l := &layout{shape: s, contextCols: ceil16(s.Context)}
	l.kvPerLayer = l.contextCols * s.Dim
	add := func(name string, rows, cols int) tensor {
		t := tensor{name: name, rows: rows, cols: cols, off: l.size}
		l.size += rows * cols
		l.allTensors = append(l.allTensors, t)
		return t
	}
	l.embed = add("embed", s.Vocab, s.Dim)
	l.pos = add("pos", s.Context, s.Dim)
	for i := range s.Layers {
		p := fmt.Sprintf("block%d.", i)
		l.blocks = append(l.blocks, blockLayout{
			norm1: add(p+"norm1", 1, s.Dim),
			qkv:   add(p+"qkv", s.Dim, 3*s.Dim),
			out:   add(p+"out", s.Dim, s.Dim),
			norm2: add(p+"norm2", 1, s.Dim),
			up:    add(p+"up", s.Dim, s.FF),
			down:  add(p+"down", s.FF, s.Dim),
		})
	}
	l.norm = add("norm", 1, s.Dim)
	l.head = add("head", s.Dim, s.logitCols())
	l.packedSize = s.Layers*(4*s.Dim*s.Dim+2*s.Dim*s.FF) + s.Dim*s.logitCols()
	return l
}

// initialize returns random parameters: norms are 1; embeddings and matrices are uniform with mean 0 and standard
// deviations 0.1 and 1/√rows. The two matrices that write to the residual stream are scaled down by √(2·Layers), as in
// GPT-2 (Radford et al. 2019, section 2.3). Uniform numbers need no logarithm, so a seed means the same model everywhere.
func (l *layout) initialize(seed uint64) []float32 {
	flat := make([]float32, l.size)
	r := newStream(seed, 0)
	fill := func(t tensor, cols int, std float64) {
		scale := std * math.Sqrt(12)
		w := t.in(flat)
		for i := range t.rows {
			for j := range cols {
				w[i*t.cols+j] = float32((float64(r.Float64()) - 0.5) * scale)
			}
		}
	}
	ones := func(t tensor) {
		for i, w := 0, t.in(flat); i < len(w); i++ {
			w[i] = 1
		}
	}
	fanIn := func(t tensor) float64 { return 1 / math.Sqrt(float64(t.rows)) }
	residual := 1 / math.Sqrt(float64(2*l.Layers))
	fill(l.embed, l.Dim, 0.1)
	fill(l.pos, l.Dim, 0.1)
	for _, b := range l.blocks {
		ones(b.norm1)
		fill(b.qkv, b.qkv.cols, fanIn(b.qkv))
		fill(b.out, b.out.cols, fanIn(b.out)*residual)
		ones(b.norm2)
		fill(b.up, b.up.cols, fanIn(b.up))
		fill(b.down, b.down.cols, fanIn(b.down)*residual)
	}
	ones(l.norm)
	fill(l.head, l.Vocab, fanIn(l.head))
	return flat
}

// newStream returns the random stream of (seed, index). Both are mixed, so neighbouring seeds and indexes have unrelated
// streams.
func newStream(seed, index uint64) *rand.Rand {
	a := splitmix64(seed)
	return rand.New(rand.NewPCG(a, splitmix64(a^splitmix64(index+1))))
}

// splitmix64 is the finalizer of Steele, Lea & Flood 2014 (Fast splittable pseudorandom number generators).
func splitmix64(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// packedBlock has the matrices of one block, packed as right-hand sides.
type packedBlock struct {
	qkv, out, up, down panels
}

// packed has all matrices of a model, packed as right-hand sides: as they are for the forward pass, transposed for the
// backward pass.
type packed struct {
	buf    []float32
	blocks []packedBlock
	head   panels
}

// weights are the parameters of a model and their packed forms. Published weights are never changed.
type weights struct {
	*layout
	flat     []float32
	forward  packed
	backward packed // empty unless the model is trained
}

func newWeights(l *layout, flat []float32) *weights {
	w := &weights{layout: l, flat: flat}
	w.repackForward()
	return w
}

// repackForward rebuilds the packed matrices after flat changed.
func (w *weights) repackForward() {
	w.repack(&w.forward, func(buf []float32, t tensor) panels {
		return pack(buf, t.in(w.flat), t.cols, t.rows, t.cols)
	})
}

// repackBackward rebuilds the packed transposed matrices after flat changed.
func (w *weights) repackBackward() {
	w.repack(&w.backward, func(buf []float32, t tensor) panels {
		return packTransposed(buf, t.in(w.flat), t.cols, t.cols, t.rows)
	})
}

func (w *weights) repack(p *packed, pack func(buf []float32, t tensor) panels) {
	if p.buf == nil {
		p.buf = make([]float32, w.packedSize)
		p.blocks = make([]packedBlock, w.Layers)
	}
	rest := p.buf
	next := func(t tensor) panels {
		n := t.rows * t.cols
		out := pack(rest[:n], t)
		rest = rest[n:]
		return out
	}
	for i, b := range w.blocks {
		p.blocks[i] = packedBlock{qkv: next(b.qkv), out: next(b.out), up: next(b.up), down: next(b.down)}
	}
	p.head = next(w.head)
}
