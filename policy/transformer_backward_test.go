package policy

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/agl-go/agl/tinker"
)

// reference computes the log-probabilities of the targets in float64. It is written for clarity.
func reference(l *layout, flat []float64, d *tinker.Datum) []float64 {
	n, dim, dh := len(d.Input), l.Dim, l.headDim()
	at := func(t tensor, i, j int) float64 { return flat[t.off+i*t.cols+j] }
	multiply := func(x [][]float64, t tensor) [][]float64 {
		out := make([][]float64, len(x))
		for r := range x {
			y := make([]float64, t.cols)
			for i, v := range x[r] {
				for j, w := range flat[t.off+i*t.cols:][:t.cols] {
					y[j] += v * w
				}
			}
			out[r] = y
		}
		return out
	}
	normalize := func(x [][]float64, gain tensor) [][]float64 {
		out := make([][]float64, len(x))
		for r := range x {
			var ss float64
			for _, v := range x[r] {
				ss += v * v
			}
			inv := 1 / math.Sqrt(ss/float64(dim)+NormEps)
			for i, v := range x[r] {
				out[r] = append(out[r], v*inv*at(gain, 0, i))
			}
		}
		return out
	}
	add := func(x, y [][]float64) {
		for r := range x {
			for i := range x[r] {
				x[r][i] += y[r][i]
			}
		}
	}
	x := make([][]float64, n)
	for r, id := range d.Input {
		for i := range dim {
			x[r] = append(x[r], at(l.embed, int(id), i)+at(l.pos, r, i))
		}
	}
	for _, b := range l.blocks {
		qkv := multiply(normalize(x, b.norm1), b.qkv)
		att := make([][]float64, n)
		for r := range n {
			att[r] = make([]float64, dim)
			for h := range l.Heads {
				var total float64
				e := make([]float64, r+1)
				for c := range e {
					for k := range dh {
						e[c] += qkv[r][h*dh+k] * qkv[c][dim+h*dh+k]
					}
					e[c] = math.Exp(e[c] / math.Sqrt(float64(dh)))
					total += e[c]
				}
				for c := range e {
					for k := range dh {
						att[r][h*dh+k] += e[c] / total * qkv[c][2*dim+h*dh+k]
					}
				}
			}
		}
		add(x, multiply(att, b.out))
		hidden := multiply(normalize(x, b.norm2), b.up)
		for r := range hidden {
			for i, v := range hidden[r] {
				hidden[r][i] = max(v, 0)
			}
		}
		add(x, multiply(hidden, b.down))
	}
	logits := multiply(normalize(x, l.norm), l.head)
	out := make([]float64, n)
	for r := range n {
		var total float64
		for _, v := range logits[r][:l.Vocab] {
			total += math.Exp(v)
		}
		out[r] = logits[r][d.Targets[r]] - math.Log(total)
	}
	return out
}

// referenceLoss computes the summed loss by the formulas of package tinker, in float64. The ratio that cispo treats as a
// constant is that of the weights at.
func referenceLoss(l *layout, at, flat []float64, data []tinker.Datum, loss tinker.Loss) float64 {
	var sum float64
	for k := range data {
		d := &data[k]
		fixed := reference(l, at, d)
		for i, p := range reference(l, flat, d) {
			w := float64(d.Weights[i])
			ratio := math.Exp(p - float64(d.Logprobs[i]))
			a := float64(d.Advantages[i])
			switch loss.Name {
			case tinker.CrossEntropy:
				sum -= w * p
			case tinker.ImportanceSampling:
				sum -= w * ratio * a
			case tinker.PPO:
				sum -= w * min(ratio*a, min(max(ratio, float64(loss.ClipLow)), float64(loss.ClipHigh))*a)
			case tinker.CISPO:
				r := math.Exp(fixed[i] - float64(d.Logprobs[i]))
				sum -= w * min(max(r, float64(loss.ClipLow)), float64(loss.ClipHigh)) * a * p
			case tinker.DRO:
				away := p - float64(d.Logprobs[i])
				sum -= w * (a*p - float64(loss.Beta)/2*away*away)
			}
		}
	}
	return sum
}

// testConfig is a small model with an odd vocabulary, two panels per head and several blocks.
func testConfig() Config {
	return Config{Vocab: 21, Context: 20, Layers: 2, Dim: 64, Heads: 2, FF: 48, Workers: 2}.withDefaults()
}

// randomBatch returns random data of several lengths with every field set.
func randomBatch(r *rand.Rand, cfg Config, n int) []tinker.Datum {
	data := make([]tinker.Datum, n)
	for i := range data {
		for range 1 + r.IntN(cfg.Context) {
			d := &data[i]
			d.Input = append(d.Input, r.Int32N(int32(cfg.Vocab)))
			d.Targets = append(d.Targets, r.Int32N(int32(cfg.Vocab)))
			d.Weights = append(d.Weights, float32(r.IntN(3))/2)
			d.Logprobs = append(d.Logprobs, -2.2-1.6*r.Float32())
			d.Advantages = append(d.Advantages, 2*r.Float32()-1)
		}
	}
	return data
}

// randomModel has gains other than 1 and logits that are not nearly uniform.
func randomModel(r *rand.Rand, l *layout) []float32 {
	flat := l.initialize(r.Uint64())
	for _, t := range l.allTensors {
		if t.rows == 1 {
			for i := range t.in(flat) {
				t.in(flat)[i] += 0.5 * (r.Float32() - 0.5)
			}
		}
	}
	return flat
}

func widen(x []float32) []float64 {
	out := make([]float64, len(x))
	for i, v := range x {
		out[i] = float64(v)
	}
	return out
}

func TestForwardMatchesReference(t *testing.T) {
	t.Parallel()
	cfg := testConfig()
	l := newLayout(cfg.shape())
	r := rand.New(rand.NewPCG(1, 1))
	tr := newTrainer(cfg, l, randomModel(r, l))
	data := randomBatch(r, cfg, 9)
	res, err := tr.forward(t.Context(), data, tinker.Loss{Name: tinker.CrossEntropy}, false)
	if err != nil {
		t.Fatal(err)
	}
	flat := widen(tr.w.flat)
	for k := range data {
		for i, want := range reference(l, flat, &data[k]) {
			if got := float64(res.Logprobs[k][i]); math.Abs(got-want) > 1e-5 {
				t.Fatalf("log-probability %d of datum %d is %v, want %v", i, k, got, want)
			}
		}
	}
}

// Every tensor's gradient, for every loss, against central differences of the float64 reference: along
// random directions, and element by element for some elements.
func TestGradient(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and it has one goroutine")
	}
	for _, loss := range []tinker.Loss{
		{Name: tinker.CrossEntropy}, {Name: tinker.ImportanceSampling}, {Name: tinker.PPO}, {Name: tinker.CISPO}, {Name: tinker.DRO, Beta: 0.4},
	} {
		t.Run(string(loss.Name), func(t *testing.T) {
			t.Parallel()
			loss := loss.WithDefaults()
			cfg := testConfig()
			l := newLayout(cfg.shape())
			r := rand.New(rand.NewPCG(2, 3))
			tr := newTrainer(cfg, l, randomModel(r, l))
			data := randomBatch(r, cfg, 2)
			res, err := tr.forward(t.Context(), data, loss, true)
			if err != nil {
				t.Fatal(err)
			}
			at, flat := widen(tr.w.flat), widen(tr.w.flat)
			if want := referenceLoss(l, at, flat, data, loss); math.Abs(res.Loss-want) > 1e-5*(1+math.Abs(want)) {
				t.Errorf("loss %v, want %v", res.Loss, want)
			}
			const h = 1e-5
			slope := func(move func(step float64)) float64 {
				move(h)
				up := referenceLoss(l, at, flat, data, loss)
				move(-2 * h)
				down := referenceLoss(l, at, flat, data, loss)
				move(h)
				return (up - down) / (2 * h)
			}
			for _, tn := range l.allTensors {
				g, w := tn.in(tr.grad), flat[tn.off:tn.off+tn.rows*tn.cols]
				norm := gradNorm(g)
				if norm == 0 {
					t.Errorf("%s: the gradient is zero", tn.name)
				}
				dir := make([]float64, len(w))
				var dirNorm, got float64
				for i := range dir {
					dir[i] = r.Float64() - 0.5 + float64(g[i])/norm
					dirNorm += dir[i] * dir[i]
					got += dir[i] * float64(g[i])
				}
				want := slope(func(step float64) {
					for i := range w {
						w[i] += step * dir[i]
					}
				})
				if math.Abs(got-want) > 1e-3*norm*math.Sqrt(dirNorm)/10 {
					t.Errorf("%s: slope along a random direction %v, want %v (norm %v)", tn.name, got, want, norm)
				}
				for range 2 {
					i := r.IntN(len(w))
					want := slope(func(step float64) { w[i] += step })
					if math.Abs(float64(g[i])-want) > 1e-3*(math.Abs(want)+norm/100) {
						t.Errorf("%s[%d]: gradient %v, want %v", tn.name, i, g[i], want)
					}
				}
			}
		})
	}
}

func TestEvalLoss(t *testing.T) {
	t.Parallel()
	const p, q = -1, -1.5 // ratio 1.6487
	ratio := float32(math.Exp(0.5))
	for _, c := range []struct {
		name        tinker.LossName
		p, q        float32
		weight, adv float32
		loss, slope float32
	}{
		{tinker.CrossEntropy, p, 0, 2, 9, 2, -2},
		{tinker.CrossEntropy, p, 0, 0, 9, 0, 0},
		{tinker.ImportanceSampling, p, p, 1, 3, -3, -3},
		{tinker.ImportanceSampling, p, q, 0.5, -2, ratio, ratio},
		{tinker.PPO, p, p, 1, 3, -3, -3},
		{tinker.PPO, p, q, 1, 1, -1.2, 0},       // clipped from above
		{tinker.PPO, p, q, 1, -1, ratio, ratio}, // the unclipped term is the smaller one
		{tinker.PPO, q, p, 1, -1, 0.8, 0},       // clipped from below
		{tinker.PPO, q, p, 1, 1, -1 / ratio, -1 / ratio},
		{tinker.CISPO, p, p, 1, 3, -3 * p, -3},
		{tinker.CISPO, p, q, 0.5, 1, -0.6 * p, -0.6},       // clipped from above, and still a gradient
		{tinker.CISPO, q, p, 1, -1, 0.8 * q, 0.8},          // clipped from below
		{tinker.DRO, p, p, 2, 3, -6 * p, -6},               // no penalty
		{tinker.DRO, p, q, 1, -1, p + 0.25*0.25, 1 + 0.25}, // Beta 0.5, half a nat away
	} {
		l := tinker.Loss{Name: c.name, Beta: 0.5}.WithDefaults()
		loss, slope := l.At(&tinker.Datum{Weights: []float32{c.weight}, Logprobs: []float32{c.q}, Advantages: []float32{c.adv}}, 0, c.p, exp32)
		if math.Abs(float64(loss-c.loss)) > 1e-6 || math.Abs(float64(slope-c.slope)) > 1e-6 {
			t.Errorf("%+v: loss %v, slope %v", c, loss, slope)
		}
	}
}
