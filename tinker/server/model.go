package server

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
)

// findModel finds a model. The lock is held.
func (s *Server) findModel(id string) (*model, error) {
	if m, ok := s.models[id]; ok {
		return m, nil
	}
	return nil, agl.Errorf(agl.CodeNotFound, "model: %q is unknown: it was unloaded, its session ended, or it belongs to an earlier run of the server. "+
		"Saved weights can be loaded into a new model", id)
}

func (s *Server) createModel(ctx context.Context, r wire.CreateModelRequest) (any, error) {
	if err := checkOptimizer(r.Optimizer); err != nil {
		return nil, err
	}
	p := tinker.CreateModelParams{BaseModel: r.BaseModel, UserMetadata: r.UserMetadata}
	if err := readLoRA(r.LoRAConfig, &p); err != nil {
		return nil, err
	}
	return s.create(ctx, r.SessionID, r.ModelSeqID, "", p, func(_ context.Context, m *model, f *future) {
		res, err := message(wire.TypedResult{ModelID: m.id, Type: "create_model"})
		s.finish(f, res, err)
	})
}

// createFromWeights creates a model whose first call loads weights.
func (s *Server) createFromWeights(ctx context.Context, r wire.LoadWeightsRequest) (any, error) {
	if r.ModelSeqID == nil || r.ModelID != "" {
		return nil, invalid("model_seq_id: is needed with session_id, in place of model_id")
	}
	if err := checkOptimizer(r.Config); err != nil {
		return nil, err
	}
	p := tinker.CreateModelParams{BaseModel: r.BaseModel, UserMetadata: r.UserMetadata}
	id := wire.LoadedModelID(r.SessionID, *r.ModelSeqID)
	return s.create(ctx, r.SessionID, *r.ModelSeqID, id, p, func(ctx context.Context, m *model, f *future) {
		m.last = f
		s.start(ctx, f, job{path: wire.LoadWeights, session: r.SessionID, do: func(ctx context.Context) (result, error) {
			if err := m.client.LoadWeights(ctx, tinker.LoadWeightsParams{Path: r.Path, WithOptimizer: r.Optimizer}); err != nil {
				s.drop(ctx, m)
				return result{}, err
			}
			return message(wire.TypedResult{Type: "load_weights", ModelID: m.id})
		}})
	})
}

// create creates a model of a session, unless a request with the same sequence id has done so. Its id is the engine's if
// id is empty. Then begin, with the lock held, begins its first call, whose future is the answer.
func (s *Server) create(ctx context.Context, session string, seq int64, id string, p tinker.CreateModelParams, begin func(ctx context.Context, m *model, f *future)) (any, error) {
	s.expire(ctx)
	of, leave, err := s.enter(session)
	if err != nil {
		return nil, err
	}
	defer leave()
	of.making.Lock()
	defer of.making.Unlock()
	f := of.models[seq]
	if f == nil || s.cfg.Order == engines.Ignored {
		m, err := s.newModel(ctx, session, p)
		if err != nil {
			return nil, err
		}
		if id != "" {
			m.id = id
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.models[m.id] = m
		of.owned = append(of.owned, m)
		if err := s.checkOpen(); err != nil {
			return nil, err
		}
		f = s.newFuture(m.id)
		of.models[seq] = f
		begin(ctx, m, f)
	}
	return f.submitted(f.model), nil
}

func checkOptimizer(o *wire.Optimizer) error {
	if o != nil && o.Type != wire.AdamW {
		return invalid("optimizer_config: %q is not supported; allowed is %q", o.Type, wire.AdamW)
	}
	return nil
}

// readLoRA takes over what a client says of its adapter.
func readLoRA(l *wire.LoRAConfig, p *tinker.CreateModelParams) error {
	if l == nil {
		return nil
	}
	if l.Rank < 0 {
		return invalid("lora_config.rank: %d is negative; 0 leaves it to the engine", l.Rank)
	}
	for _, f := range []struct {
		name  string
		train *bool
	}{{"train_unembed", l.TrainUnembed}, {"train_mlp", l.TrainMLP}, {"train_attn", l.TrainAttn}} {
		if f.train != nil && !*f.train {
			return invalid("lora_config.%s: false is not supported; this server trains all parts of a model", f.name)
		}
	}
	p.LoRARank = l.Rank
	if l.Seed != nil {
		p.Seed = *l.Seed
	}
	return nil
}

// newModel creates a model if there are fewer than MaxModels.
func (s *Server) newModel(ctx context.Context, session string, p tinker.CreateModelParams) (m *model, err error) {
	s.mu.Lock()
	if s.live >= s.cfg.MaxModels {
		err = invalid("create_model: %d models are in training, as many as this server allows; unload one, or end its session", s.live)
	} else {
		s.live++
	}
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			s.release()
		}
	}()
	client, err := s.cfg.Service.CreateModel(ctx, p)
	if err != nil {
		return nil, err
	}
	info, err := client.Info(ctx)
	if err != nil {
		return nil, err
	}
	return &model{id: info.ModelID, host: info.ModelID, session: session, client: client, calls: newCalls()}, nil
}

// release makes room for another model.
func (s *Server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live--
}

// drop removes a model whose first call failed.
func (s *Server) drop(ctx context.Context, m *model) {
	s.mu.Lock()
	if s.models[m.id] == m && m.unload == nil {
		s.live--
		delete(s.models, m.id)
		if of := s.sessions[m.session]; of != nil {
			of.disown(m)
		}
	}
	s.mu.Unlock()
	s.unload(ctx, m)
}

func (s *Server) getInfo(ctx context.Context, r wire.ModelRequest) (any, error) {
	s.mu.Lock()
	m, err := s.findModel(r.ModelID)
	s.mu.Unlock()
	if err != nil {
		return nil, err
	}
	info, err := m.client.Info(ctx)
	if err != nil {
		return nil, err
	}
	return wire.GetInfoResponse{
		Type: "get_info", ModelID: m.id, ModelName: info.Spec.Name, ModelData: wire.ModelData{ModelName: info.Spec.Name},
		Vocab: info.Spec.Vocab, Context: info.Spec.Context, Step: &info.Step, Parameters: info.Parameters,
	}, nil
}

// unloadModel has no sequence id: it runs after all calls that were submitted before.
func (s *Server) unloadModel(ctx context.Context, r wire.ModelRequest) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.findModel(r.ModelID)
	if err != nil {
		return nil, err
	}
	if err := s.checkOpen(); err != nil {
		return nil, err
	}
	if m.unload == nil {
		m.unload = s.newFuture(m.id)
		if of := s.sessions[m.session]; of != nil {
			of.disown(m)
		}
		s.start(ctx, m.unload, job{path: wire.UnloadModel, session: m.session, after: m.last, do: func(ctx context.Context) (result, error) {
			defer s.release()
			if err := m.client.Unload(ctx); err != nil {
				return result{}, err
			}
			return message(wire.TypedResult{Type: "unload_model", ModelID: m.id})
		}})
		m.last = m.unload
	}
	return m.unload.submitted(m.id), nil
}
