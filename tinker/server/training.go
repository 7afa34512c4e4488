package server

import (
	"context"
	"errors"
	"maps"
	"mime"
	"net/http"
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// train submits a call of a model.
func (s *Server) train(ctx context.Context, id string, seq *int64, path string, body []byte, do func(ctx context.Context, m *model) (result, error)) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, agl.Errorf(agl.CodeUnavailable, "the server is shutting down")
	}
	m, err := s.findModel(id)
	if err != nil {
		return nil, err
	}
	f, repeated, err := s.admit(&m.calls, seq, append([]byte(path), body...), s.cfg.Order == Strict)
	if err != nil {
		return nil, err
	}
	if !repeated {
		s.start(ctx, m.session, f, m.last, path, func(ctx context.Context) (result, error) { return do(ctx, m) })
		m.last = f
	}
	return wire.Submitted{RequestID: f.id, FutureID: f.id, Status: "pending", ModelID: m.id}, nil
}

// forward reads either encoding of a batch.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) {
	body, err := s.read(r)
	if err != nil {
		s.fail(w, err)
		return
	}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	read := wire.DecodeForwardJSON
	switch {
	case media == wire.ProtobufType && s.cfg.Encoding == JSONOnly:
		s.fail(w, invalid("body: this server reads JSON"))
		return
	case media == wire.ProtobufType:
		read = wire.DecodeForwardProtobuf
	case s.cfg.Encoding == ProtobufOnly && r.URL.Path == wire.Prefix+wire.ForwardBackward:
		s.reply(w, http.StatusUnsupportedMediaType, wire.Detail{Detail: "Content-Type must be " + wire.ProtobufType})
		return
	}
	req, err := read(body)
	if err == nil && media != wire.ProtobufType && req.ForwardOnly != (r.URL.Path == wire.Prefix+wire.Forward) {
		err = invalid("body: %s takes another input than it was given", r.URL.Path)
	}
	var p tinker.ForwardParams
	if err == nil {
		p, err = req.Input.Params()
	}
	if err == nil && len(p.Data) == 0 {
		err = invalid("data: the batch is empty; at least 1 datum is needed")
	}
	if err != nil {
		s.fail(w, err)
		return
	}
	out, err := s.train(r.Context(), req.ModelID, req.SeqID, wire.ForwardBackward, body, func(ctx context.Context, m *model) (result, error) {
		run := m.client.ForwardBackward
		if req.ForwardOnly {
			run = m.client.Forward
		}
		res, err := run(ctx, p)
		if err != nil {
			return result{}, err
		}
		var size int64
		for i := range res.Logprobs {
			size += resultOverhead + 8*int64(len(res.Logprobs[i]))
			if err := errors.Join(checkFinite("logprobs", res.Logprobs[i]), checkFinite("elementwise_loss", res.Losses[i])); err != nil {
				return result{}, agl.Errorf(agl.CodeInternal, "data[%d]: %w", i, err)
			}
		}
		output := wire.FromResult(res)
		return result{json: output.JSON, protobuf: output.Protobuf, size: size}, nil
	})
	s.answer(w, out, err)
}

// defaultRate is the SDK's learning rate.
const defaultRate = 1e-4

func (s *Server) optimStep(ctx context.Context, r wire.OptimStepRequest, body []byte) (any, error) {
	if r.Other != nil {
		return nil, invalid("optimizer_params: the optimizer %q is not supported; allowed are adam_params", r.Other.Type)
	}
	p := tinker.AdamParams{LearningRate: defaultRate, WeightDecay: r.AdamParams.WeightDecay, GradClipNorm: r.AdamParams.GradClipNorm}
	if r.AdamParams.LearningRate != nil {
		p.LearningRate = *r.AdamParams.LearningRate
	}
	for _, f := range []struct {
		name  string
		given *float64
		value *float64
	}{
		{"beta1", r.AdamParams.Beta1, &p.Beta1},
		{"beta2", r.AdamParams.Beta2, &p.Beta2},
		{"eps", r.AdamParams.Eps, &p.Eps},
	} {
		if f.given == nil {
			continue
		}
		if *f.given == 0 {
			// Zero stands for the default in tinker.AdamParams.
			return nil, invalid("adam_params: %s is 0; a positive number is needed", f.name)
		}
		*f.value = *f.given
	}
	if err := p.Validate(); err != nil {
		return nil, invalid("adam_params: %w", err)
	}
	return s.train(ctx, r.ModelID, r.SeqID, wire.OptimStep, body, func(ctx context.Context, m *model) (result, error) {
		res, err := m.client.OptimStep(ctx, p)
		if err != nil {
			return result{}, err
		}
		metrics := map[string]float64{"agl/grad_norm": res.GradNorm, "agl/step": float64(res.Step)}
		maps.Copy(metrics, res.Metrics)
		return message(wire.OptimStepResult{Metrics: metrics, Type: "optim_step"})
	})
}

func (s *Server) saveWeights(ctx context.Context, r wire.SaveWeightsRequest, body []byte) (any, error) {
	return s.save(ctx, r, wire.SaveWeights, body)
}

func (s *Server) saveWeightsForSampler(ctx context.Context, r wire.SaveWeightsRequest, body []byte) (any, error) {
	return s.save(ctx, r, wire.SaveWeightsForSampler, body)
}

func (s *Server) save(ctx context.Context, r wire.SaveWeightsRequest, path string, body []byte) (any, error) {
	if r.Kind != "" && r.Kind != wire.Snapshot {
		return nil, invalid("kind: %q is not supported; allowed is %q", r.Kind, wire.Snapshot)
	}
	name, session := r.Path, false
	if name == "" && path == wire.SaveWeightsForSampler && r.SamplingSessionSeqID != nil {
		name, session = newID("session-"+strconv.FormatInt(*r.SamplingSessionSeqID, 10)), true
	}
	if err := tinker.ValidateName(name); err != nil {
		return nil, invalid("path: %w", err)
	}
	return s.train(ctx, r.ModelID, r.SeqID, path, body, func(ctx context.Context, m *model) (result, error) {
		kind, run := tinker.KindCheckpoint, m.client.SaveWeights
		if path == wire.SaveWeightsForSampler {
			kind, run = tinker.KindSampler, m.client.SaveWeightsForSampler
		}
		p := tinker.SaveWeightsParams{Name: name, Overwrite: r.Overwrite, Transient: session}
		var saved string
		save := func() (err error) {
			saved, err = run(ctx, p)
			return err
		}
		var err error
		if p.Overwrite {
			err = s.change(tinker.Path{Model: m.home, Kind: kind, Name: name}, save)
		} else {
			err = save()
		}
		if err != nil {
			return result{}, err
		}
		if p, err := tinker.ParsePath(saved); err == nil {
			m.home = p.Model // an engine may find another one
		}
		out := wire.SaveWeightsResult{Path: &saved, Type: path[1:]}
		if session {
			id, err := s.openUnnamed(ctx, m.session, saved)
			if err != nil {
				return result{}, err
			}
			out.Path, out.SamplingSessionID = nil, &id
		}
		return message(out)
	})
}

func (s *Server) loadWeights(ctx context.Context, r wire.LoadWeightsRequest, body []byte) (any, error) {
	if r.SessionID != "" {
		return s.createFromWeights(ctx, r)
	}
	return s.train(ctx, r.ModelID, r.SeqID, wire.LoadWeights, body, func(ctx context.Context, m *model) (result, error) {
		if err := m.client.LoadWeights(ctx, tinker.LoadWeightsParams{Path: r.Path, WithOptimizer: r.Optimizer}); err != nil {
			return result{}, err
		}
		return message(wire.TypedResult{Type: "load_weights"})
	})
}
