package server

import (
	"context"
	"mime"
	"net/http"
	"strconv"

	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

// train submits a call of a model.
func (s *Server) train(ctx context.Context, id string, seq *int64, path string, body []byte, do func(ctx context.Context, m *model) (result, error)) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.checkOpen(); err != nil {
		return nil, err
	}
	m, err := s.findModel(id)
	if err != nil {
		return nil, err
	}
	f, repeated, err := s.admit(&m.calls, seq, append([]byte(path), body...), s.cfg.Order == engines.Strict)
	if err != nil {
		return nil, err
	}
	if !repeated {
		s.start(ctx, f, job{path: path, session: m.session, after: m.last, do: func(ctx context.Context) (result, error) { return do(ctx, m) }})
		m.last = f
	}
	return f.submitted(m.id), nil
}

// forward submits a forward pass, with or without its gradient, in either encoding.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) {
	body, err := s.read(w, r)
	if err != nil {
		s.fail(w, err)
		return
	}
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if s.cfg.Encoding == engines.Protobuf && media != wire.ProtobufType && r.URL.Path == wire.Prefix+wire.ForwardBackward {
		s.reply(w, http.StatusUnsupportedMediaType, wire.Detail{Detail: "Content-Type must be " + wire.ProtobufType})
		return
	}
	req, err := s.readForward(r.URL.Path, media, body)
	if err != nil {
		s.fail(w, err)
		return
	}
	out, err := s.train(r.Context(), req.ModelID, req.SeqID, wire.ForwardBackward, body, func(ctx context.Context, m *model) (result, error) {
		run := m.client.ForwardBackward
		if req.ForwardOnly {
			run = m.client.Forward
		}
		res, err := run(ctx, req.Params)
		if err != nil {
			return result{}, err
		}
		return forwardResult(res)
	})
	s.answer(w, out, err)
}

func (s *Server) readForward(path, media string, body []byte) (req wire.ForwardRequest, err error) {
	if media == wire.ProtobufType && s.cfg.Encoding == engines.JSON {
		return req, invalid("body: this server reads JSON")
	}
	if req, err = wire.DecodeForward(media, body); err != nil {
		return req, err
	}
	switch {
	case media != wire.ProtobufType && req.ForwardOnly != (path == wire.Prefix+wire.Forward):
		return req, invalid("body: %s takes another input than it was given", path)
	case len(req.Params.Data) == 0:
		return req, invalid("data: the batch is empty; at least 1 datum is needed")
	}
	return req, nil
}

func (s *Server) optimStep(ctx context.Context, r wire.OptimStepRequest, body []byte) (any, error) {
	if r.Other != nil {
		return nil, invalid("optimizer_params: the optimizer %q is not supported; use adam_params", r.Other.Type)
	}
	p, err := r.AdamParams.Adam()
	if err != nil {
		return nil, invalid("adam_params: %w", err)
	}
	return s.train(ctx, r.ModelID, r.SeqID, wire.OptimStep, body, func(ctx context.Context, m *model) (result, error) {
		res, err := m.client.OptimStep(ctx, p)
		if err != nil {
			return result{}, err
		}
		return message(wire.FromStep(res))
	})
}

// save submits the call of a path: save_weights or save_weights_for_sampler.
func (s *Server) save(ctx context.Context, r wire.SaveWeightsRequest, path string, body []byte) (any, error) {
	if r.Kind != "" && r.Kind != wire.Snapshot {
		return nil, invalid("kind: %q is not supported; allowed is %q", r.Kind, wire.Snapshot)
	}
	name, unnamed := r.Path, false
	if name == "" && path == wire.SaveWeightsForSampler && r.SamplingSessionSeqID != nil {
		name, unnamed = newID("session-"+strconv.FormatInt(*r.SamplingSessionSeqID, 10)), true
	}
	if err := tinker.ValidateName(name); err != nil {
		return nil, invalid("path: %w", err)
	}
	return s.train(ctx, r.ModelID, r.SeqID, path, body, func(ctx context.Context, m *model) (result, error) {
		saved, err := s.saveModel(ctx, m, path, tinker.SaveWeightsParams{Name: name, Overwrite: r.Overwrite, Transient: unnamed})
		if err != nil {
			return result{}, err
		}
		out := wire.SaveWeightsResult{Path: &saved, Type: path[1:]}
		if unnamed {
			id, err := s.openUnnamed(ctx, m.session, saved)
			if err != nil {
				return result{}, err
			}
			out.Path, out.SamplingSessionID = nil, &id
		}
		return message(out)
	})
}

// saveModel saves a model's weights as the call of a path does.
func (s *Server) saveModel(ctx context.Context, m *model, call string, p tinker.SaveWeightsParams) (saved string, err error) {
	kind, run := tinker.KindCheckpoint, m.client.SaveWeights
	if call == wire.SaveWeightsForSampler {
		kind, run = tinker.KindSampler, m.client.SaveWeightsForSampler
	}
	save := func() error {
		saved, err = run(ctx, p)
		return err
	}
	if p.Overwrite {
		err = s.change(tinker.Path{Model: m.host, Kind: kind, Name: p.Name}, save)
	} else {
		err = save()
	}
	if err != nil {
		return "", err
	}
	if path, err := tinker.ParsePath(saved); err == nil {
		m.host = path.Model // engines may use another name than the model's id
	}
	return saved, nil
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

func (s *Server) deleteWeights(w http.ResponseWriter, r *http.Request) {
	path := tinker.Path{Model: r.PathValue("model"), Kind: tinker.WeightsKind(r.PathValue("kind")), Name: r.PathValue("name")}
	s.answer(w, struct{}{}, s.deletePath(r.Context(), path))
}
