package policy

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/agl-go/agl/tinker"
)

// sampler samples from immutable weights. It is safe for concurrent use: each call runs on the goroutine of its caller
// with scratch memory of its own.
type sampler struct {
	w     *weights
	spec  tinker.ModelSpec
	spare *sync.Pool // of *decoder; samplers of the same shape share it
}

func (s *sampler) Spec() tinker.ModelSpec { return s.spec }

// Sample implements [tinker.SamplingClient]. It runs the prompt once for all samples and caches keys and values, so each
// token after it costs one row.
func (s *sampler) Sample(ctx context.Context, p tinker.SampleParams) (tinker.SampleResult, error) {
	if err := p.Validate(s.spec); err != nil {
		return tinker.SampleResult{}, err
	}
	if err := ctx.Err(); err != nil {
		return tinker.SampleResult{}, err
	}
	n := max(p.NumSamples, 1)
	seed := rand.Uint64()
	if p.Seed != nil {
		seed = *p.Seed
	}
	dec := s.spare.Get().(*decoder)
	defer s.spare.Put(dec)
	dec.prefill(s.w, p.Prompt, p.PromptLogprobs)
	res := tinker.SampleResult{Sequences: make([]tinker.Sequence, n)}
	if p.PromptLogprobs {
		res.PromptLogprobs = dec.promptLogprobs(p.Prompt)
	}
	for i := range res.Sequences {
		seq, err := dec.complete(ctx, s.w, p, newStream(seed, uint64(i)), i == n-1)
		if err != nil {
			return tinker.SampleResult{}, err
		}
		res.Sequences[i] = seq
	}
	return res, nil
}

// decoder is the scratch memory of one Sample call.
type decoder struct {
	ws     *workspace
	prompt *kvCache
	cache  *kvCache // of the current sample
	first  []float32
	ids    []int32
	segs   []segment
	pick   picker
}

func newDecoder(l *layout, kn kernel) *decoder {
	return &decoder{
		ws:     newWorkspace(l, kn, l.Context),
		prompt: newKVCache(l), cache: newKVCache(l),
		first: make([]float32, l.logitCols()), ids: make([]int32, 1), segs: make([]segment, 1),
		pick: picker{kernel: kn, vocab: l.Vocab, exps: make([]float32, l.logitCols())},
	}
}

// prefill runs the prompt and keeps its keys, its values and the last logits. With all, the workspace has the logits of
// all tokens.
func (d *decoder) prefill(w *weights, prompt []int32, all bool) {
	n := len(prompt)
	d.segs[0] = segment{n: n, cache: d.prompt}
	first := n - 1
	if all {
		first = 0
	}
	d.ws.forward(w, d.segs, prompt, first)
	copy(d.first, d.ws.logits[(n-1)*d.ws.logitCols():])
}

// promptLogprobs returns the log-probabilities of all tokens of the prompt but the first. It must follow prefill.
func (d *decoder) promptLogprobs(prompt []int32) []float32 {
	out := make([]float32, len(prompt)-1)
	for i := range out {
		logits := d.ws.logits[i*d.ws.logitCols():][:d.ws.logitCols()]
		lse, _ := d.pick.logSumExp(d.pick.exps, logits, d.pick.vocab)
		out[i] = logits[prompt[i+1]] - lse
	}
	return out
}

// complete samples one completion. The last one overwrites the cache of the prompt.
func (d *decoder) complete(ctx context.Context, w *weights, p tinker.SampleParams, r *rand.Rand, last bool) (tinker.Sequence, error) {
	cache := d.prompt
	if !last {
		d.cache.copyFrom(d.prompt, d.ws.layout, len(p.Prompt))
		cache = d.cache
	}
	room := min(p.MaxTokens, d.ws.Context-len(p.Prompt))
	seq := tinker.Sequence{
		Tokens: make([]int32, 0, room), Logprobs: make([]float32, 0, room), StopReason: tinker.StopLength,
	}
	logits := d.first
	for {
		token, logprob := d.pick.next(logits, p, r)
		seq.Tokens = append(seq.Tokens, token)
		seq.Logprobs = append(seq.Logprobs, logprob)
		if slices.Contains(p.Stop, token) {
			seq.StopReason = tinker.StopToken
			return seq, nil
		}
		if len(seq.Tokens) == room {
			return seq, nil
		}
		if err := ctx.Err(); err != nil {
			return tinker.Sequence{}, err
		}
		d.ids[0] = token
		d.segs[0] = segment{n: 1, pos: len(p.Prompt) + len(seq.Tokens) - 1, cache: cache}
		d.ws.forward(w, d.segs, d.ids, 0)
		logits = d.ws.logits
	}
}

// picker chooses tokens from logits.
type picker struct {
	kernel
	vocab int
	exps  []float32 // logitCols
	order []int32
}

// next samples a token and returns its log-probability before temperature and truncation. logits has whole panels.
func (k *picker) next(logits []float32, p tinker.SampleParams, r *rand.Rand) (token int32, logprob float32) {
	lse, total := k.logSumExp(k.exps, logits, k.vocab)
	if p.Temperature == 0 {
		token = argmax(logits[:k.vocab])
		return token, logits[token] - lse
	}
	if p.Temperature != 1 {
		total = k.temper(logits[:k.vocab], p.Temperature)
	}
	if p.TopK > 0 || (p.TopP > 0 && p.TopP < 1) {
		total = k.truncate(p)
	}
	token = draw(k.exps[:k.vocab], total, r)
	return token, logits[token] - lse
}

// temper sets exps to exp((logits−max)/temperature) and returns their sum.
func (k *picker) temper(logits []float32, temperature float64) (total float32) {
	top := logits[argmax(logits)]
	for i, v := range logits {
		e := exp32(float32(float64(v-top) / temperature))
		k.exps[i] = e
		total += e
	}
	return total
}

// truncate sets exps to zero for the tokens that top-k and then top-p exclude, and returns the sum of the others. The
// lower id wins a tie.
func (k *picker) truncate(p tinker.SampleParams) (total float32) {
	k.order = k.order[:0]
	for i := range k.exps[:k.vocab] {
		k.order = append(k.order, int32(i))
	}
	slices.SortStableFunc(k.order, func(a, b int32) int { return cmp.Compare(k.exps[b], k.exps[a]) })
	keep := len(k.order)
	if p.TopK > 0 {
		keep = min(keep, p.TopK)
	}
	if p.TopP > 0 && p.TopP < 1 {
		var mass float32
		for _, id := range k.order[:keep] {
			mass += k.exps[id]
		}
		limit, seen := mass*float32(p.TopP), float32(0)
		for i, id := range k.order[:keep] {
			seen += k.exps[id]
			if seen >= limit {
				keep = i + 1
				break
			}
		}
	}
	for _, id := range k.order[keep:] {
		k.exps[id] = 0
	}
	for _, id := range k.order[:keep] {
		total += k.exps[id]
	}
	return total
}

// draw returns index i with probability weights[i]/total. total is positive.
func draw(weights []float32, total float32, r *rand.Rand) int32 {
	u := r.Float64() * float64(total)
	last := 0
	for i, e := range weights {
		if e == 0 {
			continue
		}
		last = i
		u -= float64(e)
		if u < 0 {
			break
		}
	}
	return int32(last)
}

func argmax(x []float32) int32 {
	best, top := 0, float32(math.Inf(-1))
	for i, v := range x {
		if v > top {
			best, top = i, v
		}
	}
	return int32(best)
}
