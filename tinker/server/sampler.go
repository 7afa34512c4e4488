package server

import (
	"context"
	"errors"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

func (s *Server) createSamplingSession(ctx context.Context, r wire.CreateSamplingSessionRequest) (any, error) {
	of, leave, err := s.enter(r.SessionID)
	if err != nil {
		return nil, err
	}
	defer leave()
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

// openSampler makes a sampling session. The session exists before its weights are opened, so that it notices if they are
// replaced in between.
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
	s.opened(from, client)
	return id, nil
}

// openUnnamed makes a sampling session of weights that were saved without a name, and deletes their path, so that no other
// session can open them.
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

// opened sets a sampler's open weights and, beyond MaxSamplers, closes those of others: first those that can be opened again,
// the least recently used first. The lock is held.
func (s *Server) opened(from *sampler, client tinker.SamplingClient) {
	from.client = client
	s.use(from)
	for n := len(s.open); n > 1 && n > s.cfg.MaxSamplers; n-- {
		i := max(0, slices.IndexFunc(s.open[:n-1], func(o *sampler) bool { return o.source != tinker.NewSamplingClientParams{} }))
		s.open[i].client = nil
		s.open = slices.Delete(s.open, i, i+1)
	}
}

// use makes a sampler with open weights the most recently used one. The lock is held.
func (s *Server) use(from *sampler) {
	s.open = append(slices.DeleteFunc(s.open, func(o *sampler) bool { return o == from }), from)
}

// weights returns the weights of a sampler, which it opens again if they were closed.
func (s *Server) weights(ctx context.Context, from *sampler) (tinker.SamplingClient, error) {
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
	s.opened(from, client)
	return client, nil
}

// deletePath deletes saved weights. Samplers that have them open keep them.
func (s *Server) deletePath(ctx context.Context, path tinker.Path) error {
	return s.change(path, func() error {
		return s.cfg.Service.DeleteWeights(ctx, tinker.DeleteWeightsParams{Path: path.String()})
	})
}

// change replaces or deletes saved weights. A sampler of the old weights must never open new ones of the same name: while do
// runs, no sampler opens the path again, and afterwards none of the earlier samplers has the path.
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
	// After an error, too: the weights may have changed before it.
	for _, from := range s.samplers {
		if from.path() == path {
			from.source = tinker.NewSamplingClientParams{}
		}
	}
	return err
}

// path is where the weights are opened again; zero for a base model and for weights that are not opened again.
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
	// SDKs up to 0.24 create a model of this rank, and insist on a number.
	return wire.WeightsInfoResponse{BaseModel: c.Spec().Name, LoRARank: new(0)}, nil
}
