package client

import (
	"cmp"
	"context"
	"errors"
	"net/http"

	"golang.org/x/sync/semaphore"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// Client is an engine behind HTTP. It is safe for concurrent use. Errors carry the same codes as those of an engine of
// this process. A server that stays unreachable for Config.RetryFor is agl.ErrUnavailable; one that keeps answering a
// request with 500 is agl.CodeInternal.
//
// The first call that needs a session begins one, which a heartbeat keeps alive until Close.
type Client struct {
	transport *transport
	session   *session
	inFlight  *semaphore.Weighted // Sample calls
	slots     slots

	turn   *semaphore.Weighted // of size 1, held during the handshake
	server *server             // nil before it
}

var _ tinker.Service = (*Client)(nil)

// New returns a client of the server at cfg.URL. It makes no request. A Config out of range is agl.ErrInvalid.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	t, err := newTransport(cfg)
	if err != nil {
		return nil, err
	}
	s := &session{transport: t, turn: semaphore.NewWeighted(1), stop: func() {}}
	return &Client{transport: t, session: s, inFlight: semaphore.NewWeighted(int64(cfg.MaxSamples)), turn: semaphore.NewWeighted(1)}, nil
}

// Close ends the heartbeat and releases idle connections. The server ends the session, and unloads its models, when it
// receives no heartbeat.
func (c *Client) Close() error {
	c.session.close()
	c.transport.http.CloseIdleConnections()
	return nil
}

// connect makes the handshake, once, and returns what it found out.
func (c *Client) connect(ctx context.Context) (*server, error) {
	if err := c.turn.Acquire(ctx, 1); err != nil {
		return nil, err
	}
	defer c.turn.Release(1)
	if c.server != nil {
		return c.server, nil
	}
	s, err := c.transport.handshake(ctx)
	if err != nil {
		return nil, err
	}
	if more := c.transport.cfg.MaxSamples - s.maxSamples; s.maxSamples > 0 && more > 0 {
		c.inFlight.TryAcquire(int64(more)) // for good: nobody samples before the first connection
	}
	c.server = s
	return s, nil
}

// Capabilities implements [tinker.Service].
func (c *Client) Capabilities(ctx context.Context) (tinker.Capabilities, error) {
	s, err := c.connect(ctx)
	if err != nil {
		return tinker.Capabilities{}, err
	}
	return s.engine.Capabilities(s.models), nil
}

// CreateModel implements [tinker.Service].
func (c *Client) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	ctx, cancel := context.WithTimeout(ctx, c.transport.cfg.CallTimeout)
	defer cancel()
	s, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	spec, err := s.baseModel(p.BaseModel)
	if err != nil {
		return nil, err
	}
	lora := &wire.LoRAConfig{
		Rank: cmp.Or(p.LoRARank, wire.DefaultLoRARank), Seed: new(s.engine.Seed(p.Seed, 1)),
		TrainUnembed: new(true), TrainMLP: new(true), TrainAttn: new(true),
	}
	var made wire.TypedResult
	err = c.session.within(ctx, func(session string) error {
		o, err := c.transport.submit(ctx, request{path: wire.CreateModel, repeatable: s.engine.Idempotent, message: wire.CreateModelRequest{
			SessionID: session, ModelSeqID: c.session.models.Add(1) - 1, BaseModel: spec.Name, UserMetadata: p.UserMetadata,
			LoRAConfig: lora, Type: "create_model",
		}})
		if err != nil {
			return err
		}
		return o.read(wire.CreateModel, &made)
	})
	if err != nil {
		return nil, err
	}
	if err := tinker.ValidateName(made.ModelID); err != nil {
		return nil, agl.Errorf(agl.CodeInternal, "client: %s: model_id: %w", wire.CreateModel, err)
	}
	return newModel(c.transport, s, &c.slots, made.ModelID, spec), nil
}

// NewSamplingClient implements [tinker.Service].
func (c *Client) NewSamplingClient(ctx context.Context, p tinker.NewSamplingClientParams) (tinker.SamplingClient, error) {
	path, err := tinker.ParsePath(p.Path)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.transport.cfg.CallTimeout)
	defer cancel()
	s, err := c.connect(ctx)
	if err != nil {
		return nil, err
	}
	var out wire.CreateSamplingSessionResponse
	err = c.session.within(ctx, func(session string) error {
		return c.transport.ask(ctx, request{path: wire.CreateSamplingSession, message: wire.CreateSamplingSessionRequest{
			SessionID: session, SamplingSessionSeqID: c.session.samplers.Add(1) - 1, ModelPath: p.Path, Type: "create_sampling_session",
		}}, &out)
	})
	if err != nil {
		return nil, err
	}
	if out.SamplingSessionID == "" {
		return nil, agl.Errorf(agl.CodeInternal, "client: %s: the response has no sampling_session_id", wire.CreateSamplingSession)
	}
	spec := tinker.ModelSpec{Vocab: s.engine.Vocab, Context: s.engine.Context}
	if len(s.models) == 1 {
		spec = s.models[0]
	}
	return &sampler{
		transport: c.transport, session: out.SamplingSessionID, path: path, spec: spec, engine: s.engine,
		slots: &c.slots, inFlight: c.inFlight,
	}, nil
}

// DeleteWeights implements [tinker.Service]. Servers that cannot delete weights are agl.ErrUnimplemented or
// agl.ErrNotFound.
func (c *Client) DeleteWeights(ctx context.Context, p tinker.DeleteWeightsParams) error {
	path, err := tinker.ParsePath(p.Path)
	if err != nil {
		return err
	}
	r := request{method: http.MethodDelete, path: wire.CheckpointPath(path.Model, string(path.Kind), path.Name), repeatable: true}
	_, inDoubt, err := c.transport.exchange(ctx, r)
	if inDoubt && errors.Is(err, agl.ErrNotFound) {
		return nil // an earlier try, whose answer was lost, deleted them
	}
	return err
}
