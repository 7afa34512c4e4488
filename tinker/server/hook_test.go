package server

import (
	"context"
	"testing"

	"github.com/agl-go/agl/tinker"
)

// hooked is an engine with hooks that a test sets.
type hooked struct {
	tinker.Service

	creating func()                                 // before a model is created
	saving   func(p tinker.SaveWeightsParams) error // before a save
	saved    func()                                 // behind a save, before its answer
	opening  func()                                 // before weights are opened
	opened   func()
	forward  func(res *tinker.ForwardResult) // changes what a forward pass gave
}

func (h *hooked) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	once(&h.creating)
	m, err := h.Service.CreateModel(ctx, p)
	return hookedModel{m, h}, err
}

func (h *hooked) NewSamplingClient(ctx context.Context, p tinker.NewSamplingClientParams) (tinker.SamplingClient, error) {
	once(&h.opening)
	c, err := h.Service.NewSamplingClient(ctx, p)
	once(&h.opened)
	return c, err
}

// once calls a hook and removes it.
func once(hook *func()) {
	if do := *hook; do != nil {
		*hook = nil
		do()
	}
}

type hookedModel struct {
	tinker.TrainingClient

	h *hooked
}

func (m hookedModel) SaveWeights(ctx context.Context, p tinker.SaveWeightsParams) (string, error) {
	return m.save(ctx, p, m.TrainingClient.SaveWeights)
}

func (m hookedModel) SaveWeightsForSampler(ctx context.Context, p tinker.SaveWeightsParams) (string, error) {
	return m.save(ctx, p, m.TrainingClient.SaveWeightsForSampler)
}

func (m hookedModel) save(ctx context.Context, p tinker.SaveWeightsParams, do func(context.Context, tinker.SaveWeightsParams) (string, error)) (string, error) {
	if m.h.saving != nil {
		if err := m.h.saving(p); err != nil {
			return "", err
		}
	}
	path, err := do(ctx, p)
	once(&m.h.saved)
	return path, err
}

func (m hookedModel) Forward(ctx context.Context, p tinker.ForwardParams) (tinker.ForwardResult, error) {
	res, err := m.TrainingClient.Forward(ctx, p)
	if err == nil && m.h.forward != nil {
		m.h.forward(&res)
	}
	return res, err
}

func newHooked(t *testing.T, cfg Config) (*Server, *hooked) {
	t.Helper()
	s := newServer(t, cfg)
	h := &hooked{Service: s.cfg.Service}
	s.cfg.Service = h
	return s, h
}
