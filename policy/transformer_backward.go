package policy

import (
	"math"

	"github.com/agl-go/agl/tinker"
)

// gradSpace is the memory of a backward pass.
type gradSpace struct {
	logits []float32 // rows×logitCols
	dx     []float32 // rows×Dim: gradient of the residual stream
	dn     []float32 // rows×Dim: gradient of a normalised stream or of the attention output
	dqkv   []float32 // rows×3Dim
	hidden []float32 // rows×FF
	probs  []float32 // Context×contextCols: gradient of one head's probabilities
	valueT []float32 // Dim/Heads×contextCols
	packed []float32 // rows×max(3Dim, FF, logitCols)
}

// trainSpace is a workspace with room for a backward pass.
type trainSpace struct {
	*workspace

	grad gradSpace
}

func newTrainSpace(l *layout, kn kernel, rows int) *trainSpace {
	return &trainSpace{newWorkspace(l, kn, rows), gradSpace{
		logits: make([]float32, rows*l.logitCols()),
		dx:     make([]float32, rows*l.Dim),
		dn:     make([]float32, rows*l.Dim),
		dqkv:   make([]float32, rows*3*l.Dim),
		hidden: make([]float32, rows*l.FF),
		probs:  make([]float32, l.Context*l.contextCols),
		valueT: make([]float32, l.headDim()*l.contextCols),
		packed: make([]float32, rows*max(3*l.Dim, l.FF, l.logitCols())),
	}}
}

// lossRows computes the log-probabilities and losses of one sequence from its logits and, if withGrad is set, the
// gradient of the logits. All slices have one element per row of s.
func (ws *trainSpace) lossRows(s segment, d *tinker.Datum, loss tinker.Loss, logprobs, losses []float32, withGrad bool) {
	lc := ws.logitCols()
	for i, target := range d.Targets {
		row := ws.logits[(s.row+i)*lc:][:lc]
		lse, total := ws.logSumExp(ws.exps, row, ws.Vocab)
		p := row[target] - lse
		value, slope := loss.At(d, i, p, exp32)
		logprobs[i], losses[i] = p, value
		if !withGrad {
			continue
		}
		g := ws.grad.logits[(s.row+i)*lc:][:lc]
		if slope == 0 {
			clear(g)
			continue
		}
		// ∂p/∂logit_j = [j = target] − softmax_j
		f := -slope / total
		for j, e := range ws.exps[:ws.Vocab] {
			g[j] = e * f
		}
		clear(g[ws.Vocab:])
		g[target] += slope
	}
}

// backward adds the gradient of the batch of the last forward call to flat, a vector in the layout's order. The gradient
// of the logits must be in ws.grad.logits.
func (ws *trainSpace) backward(w *weights, segs []segment, ids []int32, flat []float32) {
	d, rows, lc, g := ws.Dim, len(ids), ws.logitCols(), &ws.grad
	ws.weightGrad(w.head.in(flat), ws.norm, d, g.logits, lc, rows)
	ws.matmul(g.dn, d, rowMajor(g.logits, lc), w.backward.head, rows, d, lc, false)
	clear(g.dx[:rows*d])
	rmsNormBackward(g.dx, w.norm.in(flat), g.dn, ws.out, ws.inv, w.norm.in(w.flat), rows)

	for i := len(ws.blocks) - 1; i >= 0; i-- {
		b, lay, pk := &ws.blocks[i], &w.blocks[i], &w.backward.blocks[i]

		ws.weightGrad(lay.down.in(flat), b.hidden, ws.FF, g.dx, d, rows)
		ws.matmul(g.hidden, ws.FF, rowMajor(g.dx, d), pk.down, rows, ws.FF, d, false)
		ws.rectifyBackward(g.hidden[:rows*ws.FF], b.hidden)
		ws.weightGrad(lay.up.in(flat), b.norm2, d, g.hidden, ws.FF, rows)
		ws.matmul(g.dn, d, rowMajor(g.hidden, ws.FF), pk.up, rows, d, ws.FF, false)
		rmsNormBackward(g.dx, lay.norm2.in(flat), g.dn, b.mid, b.inv2, lay.norm2.in(w.flat), rows)

		ws.weightGrad(lay.out.in(flat), b.att, d, g.dx, d, rows)
		ws.matmul(g.dn, d, rowMajor(g.dx, d), pk.out, rows, d, d, false)
		for _, s := range segs {
			ws.attendBackward(b, s)
		}
		ws.weightGrad(lay.qkv.in(flat), b.norm1, d, g.dqkv, 3*d, rows)
		ws.matmul(g.dn, d, rowMajor(g.dqkv, 3*d), pk.qkv, rows, d, 3*d, false)
		rmsNormBackward(g.dx, lay.norm1.in(flat), g.dn, b.in, b.inv1, lay.norm1.in(w.flat), rows)
	}

	embed, pos := w.embed.in(flat), w.pos.in(flat)
	for _, s := range segs {
		for i := range s.n {
			dx := g.dx[(s.row+i)*d:][:d]
			addTo(embed[int(ids[s.row+i])*d:][:d], dx)
			addTo(pos[i*d:][:d], dx)
		}
	}
}

// weightGrad adds xᵀ·dy to the gradient of a matrix, where x is rows×k and dy rows×n.
func (ws *trainSpace) weightGrad(dst, x []float32, k int, dy []float32, n, rows int) {
	ws.matmul(dst, n, transposed(x, k), pack(ws.grad.packed, dy, n, rows, n), k, n, rows, true)
}

// attendBackward computes the gradient of queries, keys and values (grad.dqkv) from that of the attention output
// (grad.dn), for one whole sequence.
func (ws *trainSpace) attendBackward(b *blockState, s segment) {
	d, dh, n, g := ws.Dim, ws.headDim(), s.n, &ws.grad
	stride, cols := ws.Heads*ws.contextCols, ws.contextCols
	scale := 1 / sqrt32(float32(dh))
	for h := range ws.Heads {
		at := s.row*3*d + h*dh
		probs := b.probs[s.row*stride+h*ws.contextCols:]
		dout := g.dn[s.row*d+h*dh:]
		// dV = Pᵀ·dO and dP = dO·Vᵀ
		ws.matmul(g.dqkv[at+2*d:], 3*d, transposed(probs, stride), inPlace(dout, d), n, dh, n, false)
		valueT := packTransposed(g.valueT, b.qkv[at+2*d:], 3*d, dh, n)
		ws.matmul(g.probs, cols, rowMajor(dout, d), valueT, n, ceil16(n), dh, false)
		// Through the softmax: dS_ij = scale·P_ij·(dP_ij − Σ_k P_ik·dP_ik)
		for i := range n {
			p, dp := probs[i*stride:][:i+1], g.probs[i*cols:][:n]
			var mean float32
			for j, v := range p {
				mean += float32(v * dp[j])
			}
			for j, v := range p {
				dp[j] = scale * v * (dp[j] - mean)
			}
			clear(dp[i+1:])
		}
		// dQ = dS·K and dK = dSᵀ·Q
		ws.matmul(g.dqkv[at:], 3*d, rowMajor(g.probs, cols), inPlace(b.qkv[at+d:], 3*d), n, dh, n, false)
		ws.matmul(g.dqkv[at+d:], 3*d, transposed(g.probs, cols), inPlace(b.qkv[at:], 3*d), n, dh, n, false)
	}
}

// rmsNormBackward adds to dx the gradient through gain·x/rms(x), given dn, and to dgain the gain's gradient.
func rmsNormBackward(dx, dgain, dn, x, inv, gain []float32, rows int) {
	d := len(gain)
	for r := range rows {
		dnr, xr, dxr := dn[r*d:][:d], x[r*d:][:d], dx[r*d:][:d]
		s := inv[r]
		var c0, c1 float32
		for i := 0; i+1 < d; i += 2 {
			t0, t1 := float32(dnr[i]*xr[i]), float32(dnr[i+1]*xr[i+1])
			c0 += float32(t0 * gain[i])
			c1 += float32(t1 * gain[i+1])
			dgain[i] += float32(t0 * s)
			dgain[i+1] += float32(t1 * s)
		}
		c := (c0 + c1) * s * s * s / float32(d)
		for i, g := range gain {
			dxr[i] += float32(float32(dnr[i]*g)*s) - float32(xr[i]*c)
		}
	}
}

// rectifyBackward zeroes the gradient where the rectifier's output is 0. len(grad) is a multiple of 8.
func (kn kernel) rectifyBackward(grad, out []float32) {
	out = out[:len(grad)]
	if kn.simd {
		rectifyBackwardKernel(&grad[0], &out[0], len(grad))
		return
	}
	for i, v := range grad {
		b := int32(math.Float32bits(out[i])) // ≥ 0: the output has no sign
		grad[i] = math.Float32frombits(math.Float32bits(v) & uint32(-b>>31))
	}
}
