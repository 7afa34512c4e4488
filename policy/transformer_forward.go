package policy

import "math"

// segment is a run of consecutive tokens of one sequence inside the rows of a workspace.
type segment struct {
	row int // its first row
	n   int // its number of rows
	pos int // the position of its first token in the sequence
	// cache holds the keys and values of the positions before pos and receives those of the segment. In training it is
	// nil, pos is 0 and the segment is the whole sequence.
	cache *kvCache
}

// kvCache holds the keys and values of one sequence for every layer, in the form of right-hand sides: keys transposed, in
// panels per head; values row by row.
type kvCache struct {
	keys, values []float32
}

func newKVCache(l *layout) *kvCache {
	return &kvCache{keys: make([]float32, l.Layers*l.kvPerLayer), values: make([]float32, l.Layers*l.kvPerLayer)}
}

// copyFrom copies the first n positions of src. It copies all keys because they are interleaved.
func (c *kvCache) copyFrom(src *kvCache, l *layout, n int) {
	copy(c.keys, src.keys)
	for i := range l.Layers {
		copy(c.values[i*l.kvPerLayer:][:n*l.Dim], src.values[i*l.kvPerLayer:])
	}
}

// blockState is what the forward pass of a block keeps for its backward pass.
type blockState struct {
	in, mid      []float32 // rows×Dim: the residual stream before attention and before the feed-forward layer
	norm1, norm2 []float32 // rows×Dim: their normalised forms
	inv1, inv2   []float32 // rows: 1/root-mean-square of in and mid
	qkv          []float32 // rows×3Dim
	probs        []float32 // rows×Heads×contextCols: attention probabilities
	att          []float32 // rows×Dim: attention output before its projection
	hidden       []float32 // rows×FF: after the rectifier
}

// workspace holds the activations of up to rows tokens. One goroutine at a time may use it.
type workspace struct {
	*layout
	kernel
	rows   int
	blocks []blockState
	out    []float32 // rows×Dim: the residual stream after the last block
	norm   []float32
	inv    []float32
	logits []float32 // rows×logitCols
	exps   []float32 // logitCols
	keysT  []float32 // Dim/Heads×contextCols
}

func newWorkspace(l *layout, kn kernel, rows int) *workspace {
	floats := func(n int) []float32 { return make([]float32, n) }
	ws := &workspace{
		layout: l, kernel: kn, rows: rows,
		blocks: make([]blockState, l.Layers),
		out:    floats(rows * l.Dim),
		norm:   floats(rows * l.Dim),
		inv:    floats(rows),
		logits: floats(rows * l.logitCols()),
		exps:   floats(l.logitCols()),
		keysT:  floats(l.headDim() * l.contextCols),
	}
	for i := range ws.blocks {
		ws.blocks[i] = blockState{
			in: floats(rows * l.Dim), mid: floats(rows * l.Dim),
			norm1: floats(rows * l.Dim), norm2: floats(rows * l.Dim),
			inv1: floats(rows), inv2: floats(rows),
			qkv:    floats(rows * 3 * l.Dim),
			probs:  floats(rows * l.Heads * l.contextCols),
			att:    floats(rows * l.Dim),
			hidden: floats(rows * l.FF),
		}
	}
	return ws
}

// forward runs the model over segs, whose tokens are ids, row by row, and writes the logits of the rows from firstLogit
// on to ws.logits. To the last bit, a row depends on its own sequence only, not on the rest of the batch or on whether
// earlier positions come from a cache.
//
// The model is a decoder-only transformer (Vaswani et al. 2017) with learned positions, RMS normalisation
// before each layer (Zhang & Sennrich 2019), a rectified feed-forward layer and no biases.
func (ws *workspace) forward(w *weights, segs []segment, ids []int32, firstLogit int) {
	d, rows := ws.Dim, len(ids)
	ws.embedRows(w, segs, ids)
	for i := range ws.blocks {
		b, lay, pk := &ws.blocks[i], &w.blocks[i], &w.forward.blocks[i]
		next := ws.out
		if i+1 < len(ws.blocks) {
			next = ws.blocks[i+1].in
		}
		rmsNorm(b.norm1, b.inv1, b.in, lay.norm1.in(w.flat), rows)
		ws.matmul(b.qkv, 3*d, rowMajor(b.norm1, d), pk.qkv, rows, 3*d, d, false)
		for _, s := range segs {
			ws.attend(b, s, i)
		}
		copy(b.mid[:rows*d], b.in)
		ws.matmul(b.mid, d, rowMajor(b.att, d), pk.out, rows, d, d, true)

		rmsNorm(b.norm2, b.inv2, b.mid, lay.norm2.in(w.flat), rows)
		ws.matmul(b.hidden, ws.FF, rowMajor(b.norm2, d), pk.up, rows, ws.FF, d, false)
		ws.rectify(b.hidden[:rows*ws.FF])
		copy(next[:rows*d], b.mid)
		ws.matmul(next, d, rowMajor(b.hidden, ws.FF), pk.down, rows, d, ws.FF, true)
	}
	rmsNorm(ws.norm, ws.inv, ws.out, w.norm.in(w.flat), rows)
	lc := ws.logitCols()
	ws.matmul(ws.logits[firstLogit*lc:], lc, rowMajor(ws.norm[firstLogit*d:], d), w.forward.head, rows-firstLogit, lc, d, false)
}

func (ws *workspace) embedRows(w *weights, segs []segment, ids []int32) {
	d := ws.Dim
	embed, pos, x := w.embed.in(w.flat), w.pos.in(w.flat), ws.blocks[0].in
	for _, s := range segs {
		for i := range s.n {
			r := s.row + i
			e, p, dst := embed[int(ids[r])*d:][:d], pos[(s.pos+i)*d:][:d], x[r*d:][:d]
			for j := range dst {
				dst[j] = e[j] + p[j]
			}
		}
	}
}

// attend computes causal multi-head attention for one segment in one layer.
func (ws *workspace) attend(b *blockState, s segment, layer int) {
	d, dh, total := ws.Dim, ws.headDim(), s.pos+s.n
	stride := ws.Heads * ws.contextCols
	scale := 1 / sqrt32(float32(dh))
	for h := range ws.Heads {
		q := b.qkv[s.row*3*d+h*dh:]
		keys, values := ws.keysAndValues(b, s, layer, h)
		probs := b.probs[s.row*stride+h*ws.contextCols:]
		ws.matmul(probs, stride, rowMajor(q, 3*d), keys, s.n, ceil16(total), dh, false)
		for i := range s.n {
			ws.softmaxRow(probs[i*stride:][:ceil16(total)], s.pos+i+1, scale)
		}
		ws.matmul(b.att[s.row*d+h*dh:], d, rowMajor(probs, stride), values, s.n, dh, total, false)
	}
}

// keysAndValues returns the keys (headDim×positions) and values (positions×headDim) of head h as right-hand sides.
func (ws *workspace) keysAndValues(b *blockState, s segment, layer, h int) (keys, values panels) {
	d, dh := ws.Dim, ws.headDim()
	k, v := b.qkv[s.row*3*d+d+h*dh:], b.qkv[s.row*3*d+2*d+h*dh:]
	if s.cache == nil {
		return packTransposed(ws.keysT, k, 3*d, dh, s.n), inPlace(v, 3*d)
	}
	cachedK := s.cache.keys[layer*ws.kvPerLayer+h*dh*ws.contextCols:][:dh*ws.contextCols]
	cachedV := s.cache.values[layer*ws.kvPerLayer+h*dh:]
	for i := range s.n {
		p := s.pos + i
		col := cachedK[p/panelWidth*dh*panelWidth+p%panelWidth:]
		for j, x := range k[i*3*d:][:dh] {
			col[j*panelWidth] = x
		}
		copy(cachedV[p*d:][:dh], v[i*3*d:])
	}
	return panels{data: cachedK, tile: dh * panelWidth, stride: panelWidth}, inPlace(cachedV, d)
}

// softmaxRow turns the first n scores of row into probabilities of scale·score, scale > 0, and the rest into
// zeros. len(row) is a multiple of 8.
func (kn kernel) softmaxRow(row []float32, n int, scale float32) {
	top := row[0]
	for _, v := range row[1:n] {
		top = max(top, v)
	}
	kn.expAll(row, row, n, scale, float32(top*scale))
	var total float32
	for _, e := range row[:n] {
		total += e
	}
	inv := 1 / total
	for i := range row[:n] {
		row[i] *= inv
	}
	clear(row[n:])
}

// logSumExp returns log Σ exp(logits) of the first n logits. It writes the terms exp(logits−max) to exps and returns their
// sum as total. The trainer and the sampler both compute log-probabilities as logits[t]−logSumExp, so they are equal.
// Both slices have room for n rounded up to a multiple of 8.
func (kn kernel) logSumExp(exps, logits []float32, n int) (lse, total float32) {
	top := logits[0]
	for _, v := range logits[1:n] {
		top = max(top, v)
	}
	kn.expAll(exps, logits, n, 1, top)
	for _, e := range exps[:n] {
		total += e
	}
	return top + log32(total), total
}

// NormEps is added to the mean square of a row before its root divides the row.
const NormEps = 1e-5

// rmsNorm writes gain·x/rms(x) to dst and 1/rms(x) to inv, for each row of len(gain) elements.
func rmsNorm(dst, inv, x, gain []float32, rows int) {
	d := len(gain)
	for r := range rows {
		xr, yr := x[r*d:][:d], dst[r*d:][:d]
		s := 1 / sqrt32(dot(xr, xr)/float32(d)+NormEps)
		inv[r] = s
		for i, g := range gain {
			yr[i] = float32(xr[i]*s) * g
		}
	}
}

// rectify computes max(x, 0) without a branch: the sign bit makes the mask. len(x) is a multiple of 8.
func (kn kernel) rectify(x []float32) {
	if kn.simd {
		rectifyKernel(&x[0], len(x))
		return
	}
	for i, v := range x {
		b := math.Float32bits(v)
		x[i] = math.Float32frombits(b &^ uint32(int32(b)>>31))
	}
}
