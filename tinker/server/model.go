package server

import (
	"context"
	"log/slog"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// model is a model in training.
type model struct {
	id      string
	home    string // its name in the paths of its weights
	session string
	client  tinker.TrainingClient
	calls   calls
	last    *future // the call that was submitted last
	unload  *future // nil until it is submitted
}

// findModel finds a model. The lock is held.
func (s *Server) findModel(id string) (*model, error) {
	if m, ok := s.models[id]; ok {
		return m, nil
	}
	return nil, agl.Errorf(agl.CodeNotFound, "model: %q is unknown: it was unloaded, its session ended, or it was of a server before this one. "+
		"Weights that were saved can be loaded into a new model", id)
}

func (s *Server) createModel(ctx context.Context, r wire.CreateModelRequest) (any, error) {
	s.expire(ctx)
	of, err := s.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	of.making.Lock()
	defer of.making.Unlock()
	if f := of.models[r.ModelSeqID]; f != nil && s.cfg.Order != Ignored {
		return wire.Submitted{RequestID: f.id, FutureID: f.id, Status: "created", ModelID: f.model}, nil
	}
	p := tinker.CreateModelParams{BaseModel: r.BaseModel, UserMetadata: r.UserMetadata}
	if err := checkOptimizer(r.Optimizer); err != nil {
		return nil, err
	}
	if err := adapter(r.LoRAConfig, &p); err != nil {
		return nil, err
	}
	m, err := s.newModel(ctx, r.SessionID, p)
	if err != nil {
		return nil, err
	}
	f := s.add(of, m)
	of.models[r.ModelSeqID] = f
	res, err := message(wire.CreateModelResult{ModelID: m.id, Type: "create_model"})
	s.finish(f, res, err)
	return wire.Submitted{RequestID: f.id, FutureID: f.id, Status: "created", ModelID: m.id}, nil
}

// createFromWeights makes a model whose first call loads weights.
func (s *Server) createFromWeights(ctx context.Context, r wire.LoadWeightsRequest) (any, error) {
	s.expire(ctx)
	if r.ModelSeqID == nil || r.ModelID != "" {
		return nil, invalid("model_seq_id: is needed with session_id, in place of model_id")
	}
	if err := checkOptimizer(r.Config); err != nil {
		return nil, err
	}
	of, err := s.session(r.SessionID)
	if err != nil {
		return nil, err
	}
	of.making.Lock()
	defer of.making.Unlock()
	if f := of.models[*r.ModelSeqID]; f != nil && s.cfg.Order != Ignored {
		return wire.Submitted{RequestID: f.id, FutureID: f.id, Status: "pending", ModelID: f.model}, nil
	}
	m, err := s.newModel(ctx, r.SessionID, tinker.CreateModelParams{BaseModel: r.BaseModel, UserMetadata: r.UserMetadata})
	if err != nil {
		return nil, err
	}
	m.id = wire.LoadedModelID(r.SessionID, *r.ModelSeqID)
	f := s.add(of, m)
	of.models[*r.ModelSeqID] = f
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, agl.Errorf(agl.CodeUnavailable, "the server is shutting down")
	}
	m.last = f
	s.start(ctx, r.SessionID, f, nil, wire.LoadWeights, func(ctx context.Context) (result, error) {
		if err := m.client.LoadWeights(ctx, tinker.LoadWeightsParams{Path: r.Path, WithOptimizer: r.Optimizer}); err != nil {
			s.drop(ctx, m)
			return result{}, err
		}
		return message(wire.TypedResult{Type: "load_weights", ModelID: m.id})
	})
	return wire.Submitted{RequestID: f.id, FutureID: f.id, Status: "pending", ModelID: m.id}, nil
}

func checkOptimizer(o *wire.Optimizer) error {
	if o != nil && o.Type != wire.AdamW {
		return invalid("optimizer_config: %q is not supported; allowed is %q", o.Type, wire.AdamW)
	}
	return nil
}

// adapter reads what a client says of its adapter.
func adapter(l *wire.LoRAConfig, p *tinker.CreateModelParams) error {
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

// newModel makes a model where there is room for one more.
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
	return &model{id: info.ModelID, home: info.ModelID, session: session, client: client, calls: newCalls()}, nil
}

// release makes room for a model.
func (s *Server) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live--
}

// add gives a model to its session. The future is that of its creation.
func (s *Server) add(of *session, m *model) *future {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.models[m.id] = m
	of.owned = append(of.owned, m)
	f := s.newFuture()
	f.model = m.id
	return f
}

// drop ends a model that never was one.
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

// unloadModel has no sequence id: it runs after the calls that were submitted before.
func (s *Server) unloadModel(ctx context.Context, r wire.ModelRequest) (any, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.findModel(r.ModelID)
	if err != nil {
		return nil, err
	}
	if s.closed {
		return nil, agl.Errorf(agl.CodeUnavailable, "the server is shutting down")
	}
	if f := m.unload; f != nil {
		return wire.Submitted{RequestID: f.id, FutureID: f.id, Status: "pending", ModelID: m.id}, nil
	}
	f := s.newFuture()
	f.model = m.id
	m.unload = f
	if of := s.sessions[m.session]; of != nil {
		of.disown(m)
	}
	s.start(ctx, m.session, f, m.last, wire.UnloadModel, func(ctx context.Context) (result, error) {
		defer s.release()
		if err := m.client.Unload(ctx); err != nil {
			return result{}, err
		}
		return message(wire.TypedResult{Type: "unload_model", ModelID: m.id})
	})
	m.last = f
	return wire.Submitted{RequestID: f.id, FutureID: f.id, Status: "pending", ModelID: m.id}, nil
}

// unload gives a model's memory back.
func (s *Server) unload(ctx context.Context, m *model) {
	if err := m.client.Unload(ctx); err != nil && agl.ErrorCode(err) != agl.CodeNotFound {
		s.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "tinker: a model was not unloaded", slog.String("model", m.id), slog.Any("error", err))
	}
}
