package client

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/klauspost/compress/zstd"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/wire"
)

// Client is an engine behind HTTP. It is safe for concurrent use. Errors carry the same codes as those of an
// engine of this process; a server that stays away is agl.CodeUnavailable once the retry budget is spent.
// One that goes on to answer a request with 500 is there, and that is agl.CodeInternal.
//
// The first call that needs one begins a session with the server, and heartbeats until Close.
type Client struct {
	cfg  Config
	base string
	http http.Client
	zstd *zstd.Encoder
	slow chan struct{} // holds one token for each Sample call that is sent

	turn    chan struct{} // holds one token while the fields up to beats are made
	server  *server
	session string
	quiet   context.CancelFunc // ends the heartbeats of the session
	beats   sync.WaitGroup
	stop    chan struct{}
	closed  sync.Once

	mu       sync.Mutex
	encoding Encoding // JSON or Protobuf when decided, else Auto
	models   int64    // that were made in the session
	samplers int64
	live     map[string]*model // that published, where snapshots change, by the host of their paths
}

var (
	_ tinker.Service        = (*Client)(nil)
	_ tinker.TrainingClient = (*model)(nil)
	_ tinker.SamplingClient = (*sampler)(nil)
)

// sdkVersion is the version that servers are told: that of the SDK whose protocol this is.
const sdkVersion = "0.24.1"

// New returns a client of the server at cfg.URL. It makes no request. A Config out of range is
// agl.CodeInvalid.
func New(cfg Config) (*Client, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	base, err := cfg.baseURL()
	if err != nil {
		return nil, err
	}
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return nil, invalid("%w", err)
	}
	return &Client{
		cfg: cfg, base: base, http: http.Client{Transport: cfg.Transport}, zstd: encoder,
		slow: make(chan struct{}, cfg.MaxSamples), turn: make(chan struct{}, 1), stop: make(chan struct{}),
		encoding: cfg.Encoding, live: map[string]*model{},
	}, nil
}

// Close ends the heartbeats and releases idle connections. The server ends the session and unloads its models
// when no heartbeat comes any more.
func (c *Client) Close() error {
	c.closed.Do(func() { close(c.stop) })
	c.beats.Wait()
	c.http.CloseIdleConnections()
	return nil
}

// server is what the handshake gave.
type server struct {
	engine     Engine
	models     []tinker.ModelSpec
	chunkData  int
	chunkBytes int
	zstd       bool
}

// alone runs do while no other call does.
func (c *Client) alone(ctx context.Context, do func() error) error {
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	defer func() { <-c.turn }()
	return do()
}

// hello makes the handshake, once.
func (c *Client) hello(ctx context.Context) (s *server, err error) {
	err = c.alone(ctx, func() error {
		if c.server == nil {
			c.server, err = c.shake(ctx)
		}
		s = c.server
		return err
	})
	return s, err
}

func (c *Client) shake(ctx context.Context) (*server, error) {
	r, err := post(wire.ClientConfig, wire.ClientConfigRequest{SDKVersion: sdkVersion})
	if err != nil {
		return nil, err
	}
	var flags wire.ClientConfigResponse
	if err := c.ask(ctx, r, &flags); err != nil && !errors.Is(err, agl.ErrNotFound) {
		return nil, err
	}
	var caps wire.CapabilitiesResponse
	err = c.ask(ctx, request{method: http.MethodGet, path: wire.ServerCapabilities}, &caps)
	if err != nil && !errors.Is(err, agl.ErrNotFound) {
		return nil, err
	}
	s := &server{chunkData: c.cfg.ChunkData, chunkBytes: c.cfg.ChunkBytes, zstd: flags.ProtoCompress}
	for _, f := range []struct {
		value     *int
		said, def int
	}{
		{&s.chunkData, flags.MaxChunkLen, 1024},
		{&s.chunkBytes, flags.MaxChunkBytes, 5_000_000},
	} {
		if *f.value == 0 {
			*f.value = f.said
		}
		if *f.value <= 0 {
			*f.value = f.def
		}
	}
	s.engine = engine(c.cfg.Engine, caps.Engine)
	for _, m := range caps.Models {
		spec := tinker.ModelSpec{Name: m.Name, Vocab: m.VocabSize, Context: m.Context}
		if spec.Vocab == 0 {
			spec.Vocab = s.engine.Vocab
		}
		if spec.Context == 0 {
			spec.Context = s.engine.Context
		}
		s.models = append(s.models, spec)
	}
	if flags.ProtoWrite {
		c.decide(Protobuf)
	}
	if n := flags.MaxSamples; n > 0 && n < cap(c.slow) {
		// Nothing is sampled yet: what the server does not want is taken for good.
		for range cap(c.slow) - n {
			select {
			case c.slow <- struct{}{}:
			default:
			}
		}
	}
	return s, nil
}

// engine is what is configured, else what the server said, else the least.
func engine(configured *Engine, said *wire.Engine) Engine {
	var e Engine
	switch {
	case configured != nil:
		e = *configured
	case said != nil:
		e = Engine{
			ImmutableSnapshots: said.ImmutableSnapshots, OptimizerOptional: said.OptimizerOptional,
			Deterministic: said.Deterministic, Idempotent: said.Idempotent, LoadDiscardsGradient: said.LoadDiscardsGradient,
			WideSeeds: said.WideSeeds,
		}
		if said.SummedLoss {
			e.Normalization = Sum
		}
		for _, l := range said.Losses {
			e.Losses = append(e.Losses, tinker.LossName(l))
		}
	}
	if e.Losses == nil {
		e.Losses = []tinker.LossName{tinker.CrossEntropy, tinker.ImportanceSampling, tinker.PPO}
	}
	return e
}

// ask makes a request that can be repeated and reads its answer into out.
func (c *Client) ask(ctx context.Context, r request, out any) error {
	r.repeat = true
	rep, _, err := c.exchange(ctx, r)
	if err != nil {
		return err
	}
	return rep.read(r.path, out)
}

func (r reply) read(path string, out any) error {
	if err := json.Unmarshal(r.body, out); err != nil {
		return agl.Errorf(agl.CodeInternal, "client: %s: the answer %.100q is not as the protocol has it: %w", path, r.body, err)
	}
	return nil
}

// open returns the session, which it begins if there is none.
func (c *Client) open(ctx context.Context) (id string, err error) {
	err = c.alone(ctx, func() error {
		if id = c.session; id != "" {
			return nil
		}
		select {
		case <-c.stop:
			return agl.Errorf(agl.CodeUnavailable, "client: is closed")
		default:
		}
		r, err := post(wire.CreateSession, wire.CreateSessionRequest{
			Tags: []string{}, UserMetadata: map[string]string{}, SDKVersion: sdkVersion, Type: "create_session",
		})
		if err != nil {
			return err
		}
		var s wire.CreateSessionResponse
		if err := c.ask(ctx, r, &s); err != nil {
			return err
		}
		if s.SessionID == "" {
			return agl.Errorf(agl.CodeInternal, "client: %s: the answer has no session_id", r.path)
		}
		c.session, id = s.SessionID, s.SessionID
		// The session outlives the call that began it.
		life, cancel := context.WithCancel(context.WithoutCancel(ctx))
		c.quiet = cancel
		c.beats.Go(func() {
			defer cancel()
			c.beat(life, id)
		})
		c.beats.Go(func() {
			select {
			case <-c.stop:
				cancel()
			case <-life.Done():
			}
		})
		return nil
	})
	return id, err
}

// inSession runs do with a session, and once more with a new one if the server knows the session no more, as after
// a restart.
func (c *Client) inSession(ctx context.Context, do func(session string) error) error {
	session, err := c.open(ctx)
	if err != nil {
		return err
	}
	err = do(session)
	if !errors.Is(err, agl.ErrNotFound) {
		return err
	}
	var beat wire.TypedResult
	r, lost := post(wire.SessionHeartbeat, wire.SessionHeartbeatRequest{SessionID: session, Type: "session_heartbeat"})
	if lost == nil {
		lost = c.ask(ctx, r, &beat)
	}
	if !errors.Is(lost, agl.ErrNotFound) {
		return err // something else is unknown
	}
	if err := c.alone(ctx, func() error {
		if c.session == session {
			c.session = ""
			c.quiet()
		}
		return nil
	}); err != nil {
		return err
	}
	if session, err = c.open(ctx); err != nil {
		return err
	}
	return do(session)
}

// beat sends signs of life until ctx ends or the server knows the session no more.
func (c *Client) beat(ctx context.Context, session string) {
	ticker := time.NewTicker(c.cfg.Heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		r, err := post(wire.SessionHeartbeat, wire.SessionHeartbeatRequest{SessionID: session, Type: "session_heartbeat"})
		if err == nil {
			var rep reply
			if rep, err = c.once(ctx, r); err == nil && rep.status/100 != 2 {
				err = rep.problem(r.path)
			}
		}
		if ctx.Err() != nil {
			return
		}
		if err != nil {
			c.cfg.Logger.LogAttrs(ctx, slog.LevelWarn, "client: no sign of life of the session reached the server", slog.Any("error", err))
		}
		if errors.Is(err, agl.ErrNotFound) {
			return
		}
	}
}

// Capabilities implements [tinker.Service].
func (c *Client) Capabilities(ctx context.Context) (tinker.Capabilities, error) {
	s, err := c.hello(ctx)
	if err != nil {
		return tinker.Capabilities{}, err
	}
	e := s.engine
	return tinker.Capabilities{
		Models: slices.Clone(s.models), Losses: e.trains(), ImmutableSnapshots: e.ImmutableSnapshots,
		SummedLoss: e.sums(), OptimizerOptional: e.OptimizerOptional, Deterministic: e.Deterministic,
	}, nil
}

// defaultRank is the rank of an adapter for which the caller gives none, as in the SDK.
const defaultRank = 32

// CreateModel implements [tinker.Service].
func (c *Client) CreateModel(ctx context.Context, p tinker.CreateModelParams) (tinker.TrainingClient, error) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.CallTimeout)
	defer cancel()
	s, err := c.hello(ctx)
	if err != nil {
		return nil, err
	}
	spec, err := s.model(p.BaseModel)
	if err != nil {
		return nil, err
	}
	rank := p.LoRARank
	if rank == 0 {
		rank = defaultRank
	}
	seed := s.engine.seed(p.Seed, 1)
	var made wire.CreateModelResult
	err = c.inSession(ctx, func(session string) error {
		r, err := post(wire.CreateModel, wire.CreateModelRequest{
			SessionID: session, ModelSeqID: c.next(&c.models), BaseModel: spec.Name, UserMetadata: p.UserMetadata, Type: "create_model",
			LoRAConfig: &wire.LoRAConfig{Rank: rank, Seed: &seed, TrainUnembed: new(true), TrainMLP: new(true), TrainAttn: new(true)},
		})
		if err != nil {
			return err
		}
		r.repeat = s.engine.Idempotent
		rep, _, _, err := c.submit(ctx, r)
		if err != nil {
			return err
		}
		return rep.read(r.path, &made)
	})
	if err != nil {
		return nil, err
	}
	if err := tinker.ValidateName(made.ModelID); err != nil {
		return nil, agl.Errorf(agl.CodeInternal, "client: %s: model_id: %w", wire.CreateModel, err)
	}
	return newModel(c, s, made.ModelID, spec), nil
}

func (c *Client) next(counter *int64) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	*counter++
	return *counter - 1
}

// model finds a base model; an empty name is the first.
func (s *server) model(name string) (tinker.ModelSpec, error) {
	for _, m := range s.models {
		if name == "" || m.Name == name {
			return m, nil
		}
	}
	if len(s.models) == 0 && name != "" {
		// The server does not say what it has.
		return tinker.ModelSpec{Name: name, Vocab: s.engine.Vocab, Context: s.engine.Context}, nil
	}
	return tinker.ModelSpec{}, agl.Errorf(agl.CodeNotFound, "client: base_model: %q is unknown; the server has %d models", name, len(s.models))
}

// DeleteWeights implements [tinker.Service]. Servers that cannot are agl.CodeUnimplemented or
// agl.CodeNotFound.
func (c *Client) DeleteWeights(ctx context.Context, p tinker.DeleteWeightsParams) error {
	path, err := tinker.ParsePath(p.Path)
	if err != nil {
		return err
	}
	r := request{method: http.MethodDelete, path: wire.CheckpointPath(path.Model, string(path.Kind), path.Name), repeat: true}
	_, inDoubt, err := c.exchange(ctx, r)
	if inDoubt && errors.Is(err, agl.ErrNotFound) {
		return nil // the try before, whose answer was lost, deleted them
	}
	return err
}
