package server

import (
	"context"
	"strconv"

	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// maxSequences bounds the completions of one request.
const maxSequences = 4096

func (s *Server) sample(ctx context.Context, r wire.SampleRequest, body []byte) (any, error) {
	stops := r.Params.Stop.Texts
	if s.cfg.Decode != nil {
		for i, text := range stops {
			if text == "" {
				return nil, invalid("sampling_params.stop[%d]: the text is empty", i)
			}
		}
		r.Params.Stop.Texts = nil // they are found after the sampling
	}
	p, err := r.SampleParams()
	if err != nil {
		return nil, err
	}
	if p.NumSamples > maxSequences {
		return nil, invalid("num_samples: %d is above %d", p.NumSamples, maxSequences)
	}
	from, client, err := s.samplingSource(ctx, r)
	if err != nil {
		return nil, err
	}
	if err := p.Validate(client.Spec()); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkOpen(); err != nil {
		return nil, err
	}
	f, repeated, err := s.admit(&from.calls, r.SeqID, body, false)
	if err != nil {
		return nil, err
	}
	if !repeated {
		s.start(ctx, f, job{path: wire.Sample, session: from.session, do: func(ctx context.Context) (result, error) {
			res, err := s.draw(ctx, client, p, stops)
			if err != nil {
				return result{}, err
			}
			return sampleResult(res, r.PromptLogprobsLastN)
		}})
	}
	out := f.submitted("")
	for i := range max(p.NumSamples, 1) {
		out.SequenceIDs = append(out.SequenceIDs, f.id+"-"+strconv.Itoa(i))
	}
	return pending{out, f}, nil
}

// samplingSource finds what a request samples: a sampling session, or weights that are opened for it alone.
func (s *Server) samplingSource(ctx context.Context, r wire.SampleRequest) (*sampler, tinker.SamplingClient, error) {
	if r.SamplingSessionID == "" {
		source, err := sourceOf(r.ModelPath, r.BaseModel)
		if err != nil {
			return nil, nil, err
		}
		client, err := s.cfg.Service.NewSamplingClient(ctx, source)
		return &sampler{calls: newCalls()}, client, err
	}
	s.mu.Lock()
	from, err := find(s.samplers, "sampling_session_id", r.SamplingSessionID)
	s.mu.Unlock()
	if err != nil {
		return nil, nil, err
	}
	client, err := s.weights(ctx, from)
	return from, client, err
}

// draw samples, and ends each completion with the token that completes the first stop text.
func (s *Server) draw(ctx context.Context, client tinker.SamplingClient, p tinker.SampleParams, stops []string) (tinker.SampleResult, error) {
	res, err := client.Sample(ctx, p)
	if err != nil {
		return res, err
	}
	if p.PromptLogprobs && len(res.PromptLogprobs) != len(p.Prompt)-1 {
		return res, invalid("prompt_logprobs: are not supported by this engine")
	}
	for i := range res.Sequences {
		seq := &res.Sequences[i]
		if n := tinker.FirstStop(s.cfg.Decode, seq.Tokens, stops); n >= 0 {
			seq.Tokens, seq.Logprobs, seq.StopReason = seq.Tokens[:n], seq.Logprobs[:n], tinker.StopToken
		}
	}
	return res, nil
}
