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

// openSampler makes a sampling session. It is there before its weights are opened, so that none can be replaced
// unnoticed in between.
func (s *Server) openSampler(ctx context.Context, session string, source tinker.NewSamplingClientParams) (string, error) {
	id := newID("sampling")
	from := &sampler{session: session, source: source, calls: newCalls()}
	s.mu.Lock()
	s.samplers[id] = from
	s.mu.Unlock()
	client, err := s.cfg.Service.NewSamplingClient(ctx, source)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		delete(s.samplers, id)
		return "", err
	}
	from.base = client.Spec().Name
	s.hold(from, client)
	return id, nil
}

// openUnnamed opens weights that nobody has a name for: no other sampling session can have them.
func (s *Server) openUnnamed(ctx context.Context, session, path string) (string, error) {
	p, err := tinker.ParsePath(path)
	if err != nil {
		return "", err
	}
	id, err := s.openSampler(ctx, session, tinker.NewSamplingClientParams{Path: path})
	if err != nil {
		return "", err
	}
	if err := s.deletePath(ctx, p); err != nil && !errors.Is(err, agl.ErrUnimplemented) {
		return "", err
	}
	return id, nil
}

// hold keeps the weights of a sampler. Beyond the bound it lets go of others: of those that can be opened again, and
// only then of those that cannot; the ones that were not used for longest first. The lock is held.
func (s *Server) hold(from *sampler, client tinker.SamplingClient) {
	from.client = client
	s.use(from)
	for {
		held := 0
		var first *sampler
		for _, other := range s.samplers {
			if other.client == nil {
				continue
			}
			held++
			if other != from && (first == nil || other.goesBefore(first)) {
				first = other
			}
		}
		if held <= s.cfg.MaxSamplers || first == nil {
			return
		}
		first.client = nil
	}
}

func (from *sampler) goesBefore(other *sampler) bool {
	none := tinker.NewSamplingClientParams{}
	if lost, otherLost := from.source == none, other.source == none; lost != otherLost {
		return otherLost
	}
	return from.used < other.used
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
	gone := agl.Errorf(agl.CodeEvicted, "sampling_session_id: its weights are gone: they were replaced or deleted, or they were saved without a name and made room for newer ones")
	if source == (tinker.NewSamplingClientParams{}) {
		return nil, gone
	}
	client, err := s.cfg.Service.NewSamplingClient(ctx, source)
	s.mu.Lock()
	defer s.mu.Unlock()
	if from.source != source || s.changing[from.path()] > 0 {
		return nil, gone
	}
	if err != nil {
		return nil, err
	}
	s.hold(from, client)
	return client, nil
}

// deletePath deletes saved weights. Those who sample them go on.
func (s *Server) deletePath(ctx context.Context, path tinker.Path) error {
	return s.change(path, func() error {
		return s.cfg.Service.DeleteWeights(ctx, tinker.DeleteWeightsParams{Path: path.String()})
	})
}

// change replaces or deletes saved weights, so that no sampler takes later weights of the same name for its own:
// while do runs nothing is opened again from the path, and afterwards no sampler of before knows it.
func (s *Server) change(path tinker.Path, do func() error) error {
	s.mu.Lock()
	s.changing[path]++
	s.mu.Unlock()
	err := do()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changing[path]--; s.changing[path] == 0 {
		delete(s.changing, path)
	}
	// Also after an error, which may have come behind the change.
	for _, from := range s.samplers {
		if from.path() == path {
			from.source = tinker.NewSamplingClientParams{}
		}
	}
	return err
}

// path is where the weights are opened again; zero for those that are not, and for a base model.
func (from *sampler) path() tinker.Path {
	p, err := tinker.ParsePath(from.source.Path)
	if err != nil {
		return tinker.Path{}
	}
	return p
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
		return s.draw(ctx, client, &sampler{calls: newCalls()}, d)
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
	return s.draw(ctx, client, from, d)
}

// draw is what a request asks for.
type draw struct {
	params tinker.SampleParams
	stops  []string
	last   *int // of the prompt's log-probabilities; nil is all
	seq    *int64
	body   []byte
}

func (s *Server) draw(ctx context.Context, client tinker.SamplingClient, from *sampler, d draw) (any, error) {
	if err := d.params.Validate(client.Spec()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, agl.Errorf(agl.CodeUnavailable, "the server is shutting down")
	}
	f, repeated, err := s.admit(&from.calls, d.seq, d.body, false)
	if err != nil {
		return nil, err
	}
	if !repeated {
		s.start(ctx, from.session, f, nil, wire.Sample, func(ctx context.Context) (result, error) {
			res, err := client.Sample(ctx, d.params)
			if err != nil {
				return result{}, err
			}
			if d.params.PromptLogprobs && len(res.PromptLogprobs) != len(d.params.Prompt)-1 {
				return result{}, invalid("prompt_logprobs: are not supported by this engine")
			}
			if err := checkFinite("prompt_logprobs", res.PromptLogprobs); err != nil {
				return result{}, err
			}
			size := 8 * int64(len(res.PromptLogprobs))
			for i := range res.Sequences {
				seq := &res.Sequences[i]
				if err := checkFinite("logprobs", seq.Logprobs); err != nil {
					return result{}, agl.Errorf(agl.CodeInternal, "sequences[%d]: %w", i, err)
				}
				if n := tinker.FirstStop(s.cfg.Decode, seq.Tokens, d.stops); n >= 0 {
					seq.Tokens, seq.Logprobs, seq.StopReason = seq.Tokens[:n], seq.Logprobs[:n], tinker.StopToken
				}
				size += resultOverhead + 8*int64(len(seq.Tokens))
			}
			out := wire.FromSequences(res)
			if d.last != nil {
				clear(out.PromptLogprobs[:len(out.PromptLogprobs)-*d.last])
			}
			return result{json: out.JSON, protobuf: func() ([]byte, error) { return out.Protobuf(), nil }, size: size}, nil
		})
	}
	out := submitted{wire.Submitted{RequestID: f.id, FutureID: f.id, Status: "pending"}, f}
	for i := range max(d.params.NumSamples, 1) {
		out.SequenceIDs = append(out.SequenceIDs, f.id+"-"+strconv.Itoa(i))
	}
	return out, nil
}
