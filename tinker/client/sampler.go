package client

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

// minPreferTimeout is the shortest RequestTimeout with which a submit may wait for its result.
const minPreferTimeout = 5 * time.Second

// sampler samples one set of published weights.
type sampler struct {
	*transport

	session  string // the sampling session
	path     tinker.Path
	spec     tinker.ModelSpec
	engine   engines.Engine
	slots    *slots
	inFlight *semaphore.Weighted
	seq      atomic.Int64
}

// Spec implements [tinker.SamplingClient]. It is unknown where the server has several models.
func (s *sampler) Spec() tinker.ModelSpec { return s.spec }

// Sample implements [tinker.SamplingClient]. A request that is sent twice draws the same tokens twice.
func (s *sampler) Sample(ctx context.Context, p tinker.SampleParams) (tinker.SampleResult, error) {
	if err := p.Validate(s.spec); err != nil {
		return tinker.SampleResult{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.cfg.CallTimeout)
	defer cancel()
	if p.Seed == nil {
		p.Seed = new(rand.Uint64())
	}
	p.Seed = new(s.engine.Seed(*p.Seed, p.NumSamples))
	if err := s.inFlight.Acquire(ctx, 1); err != nil {
		return tinker.SampleResult{}, err
	}
	defer s.inFlight.Release(1)
	end, err := s.slots.beginSample(ctx, s.path)
	if err != nil {
		return tinker.SampleResult{}, err
	}
	defer end()
	message := wire.FromSample(p)
	message.SamplingSessionID, message.SeqID = s.session, new(s.seq.Add(1)-1)
	o, err := s.submit(ctx, request{
		path: wire.Sample, message: message, accept: s.accept(), repeatable: true,
		preferResult: s.cfg.Encoding != engines.Protobuf && s.cfg.RequestTimeout >= minPreferTimeout,
	})
	if err != nil {
		return tinker.SampleResult{}, err
	}
	res, err := wire.DecodeSampleResult(o.media, o.body, p)
	if err != nil {
		return tinker.SampleResult{}, agl.Errorf(agl.CodeInternal, "client: %w", err)
	}
	return res, nil
}
