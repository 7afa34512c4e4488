package server

import (
	"context"
	"errors"
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// sampler is a sampling session.
type sampler struct {
	session string
	// source opens its weights again; it is zero of weights without a name, or that were deleted.
	source tinker.NewSamplingClientParams
	base   string // the model's name
	client tinker.SamplingClient
	used   uint64 // the number of the last use
	calls  calls
}

func (s *Server) createSamplingSession(ctx context.Context, r wire.CreateSamplingSessionRequest) (any, error) {
	of, err := s.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	of.making.Lock()
	defer of.making.Unlock()
	id := of.samplers[r.SamplingSessionSeqID]
	if id == "" {
		source, err := sourceOf(r.ModelPath, r.BaseModel)
		if err != nil {
			return nil, err
		}
		if id, err = s.openSampler(ctx, r.SessionID, source); err != nil {
			return nil, err
		}
		of.samplers[r.SamplingSessionSeqID] = id
	}
	return wire.CreateSamplingSessionResponse{Type: "create_sampling_session", SamplingSessionID: id}, nil
}

func sourceOf(path, base string) (tinker.NewSamplingClientParams, error) {
	switch {
	case path != "":
		return tinker.NewSamplingClientParams{Path: path}, nil
	case base != "":
		return tinker.NewSamplingClientParams{BaseModel: base}, nil
	}
	return tinker.NewSamplingClientParams{}, invalid("model_path or base_model: one is required")
}

func (s *Server) openSampler(ctx context.Context, session string, source tinker.NewSamplingClientParams) (string, error) {
	client, err := s.cfg.Service.NewSamplingClient(ctx, source)
	if err != nil {
		return "", err
	}
	id := newID("sampling")
	s.mu.Lock()
	defer s.mu.Unlock()
	from := &sampler{session: session, source: source, base: client.Spec().Name, calls: newCalls()}
	s.samplers[id] = from
	s.hold(from, client)
	return id, nil
}

// openUnnamed opens weights that nobody has a name for: they are for this session alone.
func (s *Server) openUnnamed(ctx context.Context, session, path string) (string, error) {
	id, err := s.openSampler(ctx, session, tinker.NewSamplingClientParams{Path: path})
	if err != nil {
		return "", err
	}
	err = s.cfg.Service.DeleteWeights(ctx, tinker.DeleteWeightsParams{Path: path})
	if err != nil && !errors.Is(err, agl.ErrUnimplemented) {
		return "", err
	}
	s.forget(path)
	return id, nil
}

// hold keeps the weights of a sampler, and lets go of those that were not used for longest. The lock is held.
func (s *Server) hold(from *sampler, client tinker.SamplingClient) {
	from.client = client
	s.use(from)
	for {
		held := 0
		oldest := from
		for _, other := range s.samplers {
			if other.client != nil {
				held++
				if other.used < oldest.used {
					oldest = other
				}
			}
		}
		if held <= s.cfg.MaxSamplers {
			return
		}
		oldest.client = nil
	}
}

func (s *Server) use(from *sampler) {
	s.uses++
	from.used = s.uses
}

// clientOf is the weights of a sampler, which may have to be opened again.
func (s *Server) clientOf(ctx context.Context, from *sampler) (tinker.SamplingClient, error) {
	s.mu.Lock()
	client, source := from.client, from.source
	if client != nil {
		s.use(from)
	}
	s.mu.Unlock()
	if client != nil {
		return client, nil
	}
	if source == (tinker.NewSamplingClientParams{}) {
		return nil, agl.Errorf(agl.CodeEvicted, "sampling_session_id: its weights are gone: they were deleted, or they were saved without a name and made room for newer ones")
	}
	client, err := s.cfg.Service.NewSamplingClient(ctx, source)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hold(from, client)
	return client, nil
}

// deletePath deletes saved weights. Those who sample them go on.
func (s *Server) deletePath(ctx context.Context, path tinker.Path) error {
	if err := s.cfg.Service.DeleteWeights(ctx, tinker.DeleteWeightsParams{Path: path.String()}); err != nil {
		return err
	}
	s.forget(path.String())
	return nil
}

// forget makes sure that no sampler takes later weights of the same name for its own.
func (s *Server) forget(path string) {
	want, err := tinker.ParsePath(path)
	if err != nil {
		return // nothing was opened from what is not a path
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, from := range s.samplers {
		if p, err := tinker.ParsePath(from.source.Path); err == nil && p == want {
			from.source = tinker.NewSamplingClientParams{}
		}
	}
}

func (s *Server) getSampler(id string) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from, err := find(s.samplers, "sampling_session_id", id)
	if err != nil {
		return nil, err
	}
	out := wire.SamplerResponse{SamplerID: id, BaseModel: from.base}
	if from.source.Path != "" {
		out.ModelPath = new(from.source.Path)
	}
	return out, nil
}

func (s *Server) weightsInfo(ctx context.Context, r wire.WeightsInfoRequest) (any, error) {
	c, err := s.cfg.Service.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: r.TinkerPath})
	if err != nil {
		return nil, err
	}
	// SDKs up to 0.24 make a model of this rank, and insist on a number.
	return wire.WeightsInfoResponse{BaseModel: c.Spec().Name, LoRARank: new(0)}, nil
}

// mostSamples bounds the completions of one request.
const mostSamples = 4096

func (s *Server) sample(ctx context.Context, r wire.SampleRequest, body []byte) (any, error) {
	stops := r.Params.Stop.Texts
	if s.cfg.Decode != nil {
		for i, text := range stops {
			if text == "" {
				return nil, invalid("sampling_params.stop[%d]: the text is empty", i)
			}
		}
		r.Params.Stop.Texts = nil
	}
	p, err := r.SampleParams()
	if err != nil {
		return nil, err
	}
	if p.NumSamples > mostSamples {
		return nil, invalid("num_samples: %d is above %d", p.NumSamples, mostSamples)
	}
	d := draw{params: p, stops: stops, last: r.PromptLogprobsLastN, seq: r.SeqID, body: body}
	if r.SamplingSessionID == "" {
		source, err := sourceOf(r.ModelPath, r.BaseModel)
		if err != nil {
			return nil, err
		}
		client, err := s.cfg.Service.NewSamplingClient(ctx, source)
		if err != nil {
			return nil, err
		}
		d.seq = nil
		return s.draw(ctx, client, new(newCalls()), d)
	}
	s.mu.Lock()
	from, err := find(s.samplers, "sampling_session_id", r.SamplingSessionID)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	client, err := s.clientOf(ctx, from)
	if err != nil {
		return nil, err
	}
	return s.draw(ctx, client, &from.calls, d)
}

// draw is what a request asks for.
type draw struct {
	params tinker.SampleParams
	stops  []string
	last   *int // of the prompt's log-probabilities; nil is all
	seq    *int64
	body   []byte
}

func (s *Server) draw(ctx context.Context, client tinker.SamplingClient, of *calls, d draw) (any, error) {
	if err := d.params.Validate(client.Spec()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, agl.Errorf(agl.CodeUnavailable, "the server is shutting down")
	}
	f, repeated, err := s.admit(of, d.seq, d.body, false)
	if err != nil {
		return nil, err
	}
	if !repeated {
		s.start(ctx, f, nil, wire.Sample, func(ctx context.Context) (result, error) {
			res, err := client.Sample(ctx, d.params)
			if err != nil {
				return result{}, err
			}
			if d.params.PromptLogprobs && len(res.PromptLogprobs) != len(d.params.Prompt)-1 {
				return result{}, invalid("prompt_logprobs: are not supported by this engine")
			}
			for i := range res.Sequences {
				seq := &res.Sequences[i]
				if n := tinker.FirstStop(s.cfg.Decode, seq.Tokens, d.stops); n >= 0 {
					seq.Tokens, seq.Logprobs, seq.StopReason = seq.Tokens[:n], seq.Logprobs[:n], tinker.StopToken
				}
			}
			out := wire.FromSequences(res)
			if d.last != nil {
				clear(out.PromptLogprobs[:len(out.PromptLogprobs)-*d.last])
			}
			return result{json: out.JSON, protobuf: func() ([]byte, error) { return out.Protobuf(), nil }}, nil
		})
	}
	out := wire.Submitted{RequestID: f.id, FutureID: f.id, Status: "pending"}
	for i := range max(d.params.NumSamples, 1) {
		out.SequenceIDs = append(out.SequenceIDs, f.id+"-"+strconv.Itoa(i))
	}
	return out, nil
}
