package client

import (
	"context"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// leastForEarly is the least RequestTimeout with which a submit may wait for its result.
const leastForEarly = 5 * time.Second

// sampler samples from one set of published weights.
type sampler struct {
	client  *Client
	session string // of sampling
	path    tinker.Path
	spec    tinker.ModelSpec
	engine  Engine
	seq     atomic.Int64
}

// NewSamplingClient implements [tinker.Service].
func (c *Client) NewSamplingClient(ctx context.Context, p tinker.NewSamplingClientParams) (tinker.SamplingClient, error) {
	path, err := tinker.ParsePath(p.Path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	s, err := c.hello(ctx)
	if err != nil {
		return nil, err
	}
	var out wire.CreateSamplingSessionResponse
	err = c.inSession(ctx, func(session string) error {
		r, err := post(wire.CreateSamplingSession, wire.CreateSamplingSessionRequest{
			SessionID: session, SamplingSessionSeqID: c.next(&c.samplers), ModelPath: p.Path, Type: "create_sampling_session",
		})
		if err != nil {
			return err
		}
		return c.ask(ctx, r, &out)
	})
	if err != nil {
		return nil, err
	}
	if out.SamplingSessionID == "" {
		return nil, agl.Errorf(agl.CodeInternal, "client: %s: the answer has no sampling_session_id", wire.CreateSamplingSession)
	}
	w := &sampler{client: c, session: out.SamplingSessionID, path: path, engine: s.engine}
	w.spec = tinker.ModelSpec{Vocab: s.engine.Vocab, Context: s.engine.Context}
	if len(s.models) == 1 {
		w.spec = s.models[0]
	}
	return w, nil
}

// Spec implements [tinker.SamplingClient]. It is unknown where the server has several models.
func (w *sampler) Spec() tinker.ModelSpec { return w.spec }

// seed is a seed as the engine takes it, for so many samples: the i-th is drawn with seed+i. On an engine whose
// seeds are narrow, one that is too large for all of them fails the samples of others with it.
func (e Engine) seed(seed uint64, samples int) uint64 {
	if e.WideSeeds || seed <= math.MaxInt32-uint64(max(samples, 1)) {
		return seed
	}
	// The finalizer of SplitMix64 (Steele et al. 2014): every bit of the seed decides.
	seed = (seed ^ seed>>30) * 0xbf58476d1ce4e5b9
	seed = (seed ^ seed>>27) * 0x94d049bb133111eb
	return (seed ^ seed>>31) >> 34
}

// Sample implements [tinker.SamplingClient]. A draw that is sent twice is the same draw.
func (w *sampler) Sample(ctx context.Context, p tinker.SampleParams) (tinker.SampleResult, error) {
	if err := p.Validate(w.spec); err != nil {
		return tinker.SampleResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, w.client.cfg.CallTimeout)
	defer cancel()
	if p.Seed == nil {
		p.Seed = new(rand.Uint64())
	}
	p.Seed = new(w.engine.seed(*p.Seed, p.NumSamples))
	select {
	case w.client.slow <- struct{}{}:
	case <-ctx.Done():
		return tinker.SampleResult{}, ctx.Err()
	}
	defer func() { <-w.client.slow }()
	if g := w.client.gate(w.path); g != nil {
		if err := g.beginSample(ctx, w.path.String()); err != nil {
			return tinker.SampleResult{}, err
		}
		defer g.endSample()
	}
	message := wire.FromSample(p)
	message.SamplingSessionID, message.SeqID = w.session, new(w.seq.Add(1)-1)
	r, err := post(wire.Sample, message)
	if err != nil {
		return tinker.SampleResult{}, err
	}
	r.repeat, r.accept = true, w.client.accept()
	r.early = w.client.cfg.Encoding != Protobuf && w.client.cfg.RequestTimeout >= leastForEarly
	rep, _, _, err := w.client.submit(ctx, r)
	if err != nil {
		return tinker.SampleResult{}, err
	}
	decode := wire.DecodeSampleJSON
	if rep.media == wire.ProtobufType {
		decode = wire.DecodeSampleProtobuf
	}
	out, err := decode(rep.body)
	if err != nil {
		return tinker.SampleResult{}, agl.Errorf(agl.CodeInternal, "client: %w", err)
	}
	res, err := out.Result(p)
	if err != nil {
		return tinker.SampleResult{}, agl.Errorf(agl.CodeInternal, "client: %w", err)
	}
	return res, nil
}

// gate is the gate of the model that a snapshot was published from, if that is in training.
func (c *Client) gate(path tinker.Path) *gate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if m := c.live[path.Model]; m != nil && path.Kind == tinker.KindSampler {
		return m.gate
	}
	return nil
}
