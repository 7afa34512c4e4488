package wire

import (
	"maps"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/tinker"
)

// Prefix is the path below which every call lies.
const Prefix = "/api/v1"

// The paths of the calls, below [Prefix]. All are POST but [Healthz] and [ServerCapabilities], which are GET; weights are
// deleted by DELETE of [CheckpointPath].
const (
	Healthz               = "/healthz"
	ServerCapabilities    = "/get_server_capabilities"
	ClientConfig          = "/client/config"
	CreateSession         = "/create_session"
	SessionHeartbeat      = "/session_heartbeat"
	CreateModel           = "/create_model"
	UnloadModel           = "/unload_model"
	GetInfo               = "/get_info"
	Forward               = "/forward"
	ForwardBackward       = "/forward_backward"
	OptimStep             = "/optim_step"
	SaveWeights           = "/save_weights"
	SaveWeightsForSampler = "/save_weights_for_sampler"
	LoadWeights           = "/load_weights"
	WeightsInfo           = "/weights_info"
	CreateSamplingSession = "/create_sampling_session"
	Sample                = "/asample"
	RetrieveFuture        = "/retrieve_future"
)

// CheckpointPath is the path, below [Prefix], of saved weights; kind is weights or sampler_weights.
func CheckpointPath(model, kind, name string) string {
	return "/training_runs/" + model + "/checkpoints/" + kind + "/" + name
}

// PreferHeader with the value [PreferResult] asks for the result of a sample in the answer to its submit, if it is there
// within a second (RFC 7240 §4.3). Other servers ignore it.
const (
	PreferHeader = "Prefer"
	PreferResult = "wait=1"
)

// The media types of the two encodings.
const (
	JSONType     = "application/json"
	ProtobufType = "application/x-protobuf"
)

// KeyHeader carries the API key.
const KeyHeader = "X-API-Key"

// SDKVersion is the version that a client of this package reports: that of the SDK whose protocol it speaks.
const SDKVersion = "0.24.1"

// The SDK's defaults, for what a server or a client leaves out.
const (
	// DefaultChunkLen and DefaultChunkBytes bound one forward_backward request.
	DefaultChunkLen   = 1024
	DefaultChunkBytes = 5_000_000
	// DefaultLoRARank is the rank of an adapter.
	DefaultLoRARank = 32
	// DefaultLearningRate is the learning rate of an optimizer step.
	DefaultLearningRate = 1e-4
)

// ClientConfigRequest begins the handshake.
type ClientConfigRequest struct {
	SDKVersion string `json:"sdk_version"`
}

// ClientConfigResponse is what a server wants of its clients. Zero means that it does not say.
type ClientConfigResponse struct {
	// ProtoWrite asks for forward_backward requests in protobuf.
	ProtoWrite bool `json:"proto_write_fwdbwd,omitzero"`
	// ProtoCompress offers to read them compressed with zstd.
	ProtoCompress bool `json:"proto_compress_fwdbwd,omitzero"`
	// MaxChunkLen is the largest number of data in one forward_backward request.
	MaxChunkLen int `json:"fwdbwd_max_chunk_len,omitzero"`
	// MaxChunkBytes is the largest size of one forward_backward request before compression.
	MaxChunkBytes int `json:"fwdbwd_max_chunk_bytes_count,omitzero"`
	// ParallelChunks allows the requests of one batch to be in flight together. Absent means true.
	ParallelChunks *bool `json:"parallel_fwdbwd_chunks,omitzero"`
	// MaxSamples is the largest number of sampling requests in flight.
	MaxSamples int `json:"sample_max_concurrent_requests,omitzero"`
}

// HealthResponse answers [Healthz].
type HealthResponse struct {
	Status string `json:"status"`
}

// CapabilitiesResponse answers [ServerCapabilities].
type CapabilitiesResponse struct {
	Models []SupportedModel `json:"supported_models"`
	// Engine is an extension of this project.
	Engine *Engine `json:"agl_engine,omitzero"`
}

// SupportedModel is a base model. VocabSize is an extension.
type SupportedModel struct {
	Name      string `json:"model_name"`
	Context   int    `json:"max_context_length,omitzero"`
	VocabSize int    `json:"vocab_size,omitzero"`
}

// Engine is what a server says of its engine. The fields are those of engines.Engine and tinker.Capabilities.
type Engine struct {
	Losses               []tinker.LossName `json:"losses"`
	ImmutableSnapshots   bool              `json:"immutable_snapshots"`
	SummedLoss           bool              `json:"summed_loss"`
	OptimizerOptional    bool              `json:"optimizer_optional"`
	Deterministic        bool              `json:"deterministic"`
	Idempotent           bool              `json:"idempotent"`
	LoadDiscardsGradient bool              `json:"load_discards_gradient"`
	WideSeeds            bool              `json:"wide_seeds"`
}

// CreateSessionRequest begins a session, which owns models and sampling sessions.
type CreateSessionRequest struct {
	Tags         []string          `json:"tags"`
	UserMetadata map[string]string `json:"user_metadata"`
	SDKVersion   string            `json:"sdk_version"`
	Type         string            `json:"type"`
}

// CreateSessionResponse answers [CreateSession].
type CreateSessionResponse struct {
	Type      string `json:"type"`
	SessionID string `json:"session_id"`
}

// SessionHeartbeatRequest keeps a session alive.
type SessionHeartbeatRequest struct {
	SessionID string `json:"session_id"`
	Type      string `json:"type"`
}

// LoRAConfig describes an adapter. Absent parts are trained.
type LoRAConfig struct {
	Rank         int     `json:"rank"`
	Seed         *uint64 `json:"seed,omitzero"`
	TrainUnembed *bool   `json:"train_unembed,omitzero"`
	TrainMLP     *bool   `json:"train_mlp,omitzero"`
	TrainAttn    *bool   `json:"train_attn,omitzero"`
}

// Optimizer selects an optimizer; absent means adamw.
type Optimizer struct {
	Type string `json:"type"`
}

// AdamW is the only type of [Optimizer] that the engines of this project have.
const AdamW = "adamw"

// CreateModelRequest creates a model. SessionID and ModelSeqID identify the request.
type CreateModelRequest struct {
	SessionID    string            `json:"session_id"`
	ModelSeqID   int64             `json:"model_seq_id"`
	BaseModel    string            `json:"base_model"`
	UserMetadata map[string]string `json:"user_metadata,omitzero"`
	LoRAConfig   *LoRAConfig       `json:"lora_config,omitzero"`
	Optimizer    *Optimizer        `json:"optimizer_config,omitzero"`
	Type         string            `json:"type"`
}

// Submitted answers every call that returns a future.
type Submitted struct {
	RequestID string `json:"request_id"`
	FutureID  string `json:"future_id,omitzero"`
	Status    string `json:"status,omitzero"`
	ModelID   string `json:"model_id,omitzero"`
	// SequenceIDs names the completions of a sampling request, in order; newer SDKs insist on it.
	SequenceIDs []string `json:"sample_sequence_ids,omitzero"`
	// Result is the result in JSON, if it was asked for with [PreferHeader] and came in time. It is an extension.
	Result jsontext.Value `json:"result,omitzero"`
}

// ModelRequest is the body of [UnloadModel] and [GetInfo].
type ModelRequest struct {
	ModelID string `json:"model_id"`
	Type    string `json:"type"`
}

// GetInfoResponse describes a model. Vocab, Context, Step and Parameters are extensions.
type GetInfoResponse struct {
	Type       string    `json:"type,omitzero"`
	ModelID    string    `json:"model_id"`
	ModelData  ModelData `json:"model_data"`
	ModelName  string    `json:"model_name,omitzero"`
	IsLoRA     bool      `json:"is_lora"`
	Vocab      int       `json:"vocab_size,omitzero"`
	Context    int       `json:"max_context_length,omitzero"`
	Step       *int64    `json:"step,omitzero"`
	Parameters int       `json:"parameters,omitzero"`
}

// ModelData is the nested part of [GetInfoResponse].
type ModelData struct {
	ModelName string `json:"model_name,omitzero"`
}

// AdamParams are the parameters of an optimizer step. Nil means the SDK's default.
type AdamParams struct {
	LearningRate *float64 `json:"learning_rate,omitzero"`
	Beta1        *float64 `json:"beta1,omitzero"`
	Beta2        *float64 `json:"beta2,omitzero"`
	Eps          *float64 `json:"eps,omitzero"`
	WeightDecay  float64  `json:"weight_decay"`
	GradClipNorm float64  `json:"grad_clip_norm"`
}

// FromAdam is the wire form of p, with its defaults written out.
func FromAdam(p tinker.AdamParams) AdamParams {
	p = p.WithDefaults()
	return AdamParams{
		LearningRate: &p.LearningRate, Beta1: &p.Beta1, Beta2: &p.Beta2, Eps: &p.Eps,
		WeightDecay: p.WeightDecay, GradClipNorm: p.GradClipNorm,
	}
}

// Adam converts the parameters back. What is out of range is agl.ErrInvalid.
func (a AdamParams) Adam() (tinker.AdamParams, error) {
	p := tinker.AdamParams{LearningRate: DefaultLearningRate, WeightDecay: a.WeightDecay, GradClipNorm: a.GradClipNorm}
	if a.LearningRate != nil {
		p.LearningRate = *a.LearningRate
	}
	for _, f := range []struct {
		name  string
		given *float64
		value *float64
	}{{"beta1", a.Beta1, &p.Beta1}, {"beta2", a.Beta2, &p.Beta2}, {"eps", a.Eps, &p.Eps}} {
		if f.given == nil {
			continue
		}
		if *f.given == 0 {
			// In tinker.AdamParams zero means the default.
			return p, invalid("%s is 0; a positive number is needed", f.name)
		}
		*f.value = *f.given
	}
	return p, p.Validate()
}

// OptimStepRequest takes an optimizer step. Another optimizer than AdamW sends Other in place of AdamParams.
type OptimStepRequest struct {
	ModelID    string     `json:"model_id"`
	SeqID      *int64     `json:"seq_id,omitzero"`
	AdamParams AdamParams `json:"adam_params"`
	Other      *Optimizer `json:"optimizer_params,omitzero"`
	Type       string     `json:"type"`
}

// OptimStepResult is the result of optim_step.
type OptimStepResult struct {
	Metrics map[string]float64 `json:"metrics,omitzero"`
	Type    string             `json:"type,omitzero"`
}

// FromStep is the wire form of a result.
func FromStep(res tinker.OptimStepResult) OptimStepResult {
	metrics := map[string]float64{"agl/grad_norm": res.GradNorm, "agl/step": float64(res.Step)}
	maps.Copy(metrics, res.Metrics)
	return OptimStepResult{Metrics: metrics, Type: "optim_step"}
}

// Result converts the result back. Step is that of a server that does not say it. Engines prefix metrics with their own
// name, as in skyrl.ai/grad_norm.
func (r OptimStepResult) Result(step int64) tinker.OptimStepResult {
	out := tinker.OptimStepResult{Step: step, Metrics: r.Metrics}
	for name, v := range r.Metrics {
		switch name[strings.LastIndexByte(name, '/')+1:] {
		case "grad_norm":
			out.GradNorm = v
		case "step":
			out.Step = int64(v)
		}
	}
	return out
}

// SaveWeightsRequest is the body of [SaveWeights] and [SaveWeightsForSampler]. For the latter, a SamplingSessionSeqID in
// place of a Path opens a sampling session of the snapshot at once.
type SaveWeightsRequest struct {
	ModelID              string `json:"model_id"`
	SeqID                *int64 `json:"seq_id,omitzero"`
	Path                 string `json:"path,omitzero"`
	SamplingSessionSeqID *int64 `json:"sampling_session_seq_id,omitzero"`
	Overwrite            bool   `json:"overwrite,omitzero"`
	// Kind is [Snapshot], also if it is absent, or inflight: weights that later saves replace.
	Kind string `json:"kind,omitzero"`
	Type string `json:"type"`
}

// Snapshot is the kind of sampler weights that never change.
const Snapshot = "snapshot"

// SaveWeightsResult is the result of both calls.
type SaveWeightsResult struct {
	Path              *string `json:"path"`
	SamplingSessionID *string `json:"sampling_session_id,omitzero"`
	Type              string  `json:"type,omitzero"`
}

// LoadWeightsRequest loads a checkpoint into a model; with SessionID and ModelSeqID in place of ModelID and SeqID, into a
// new model whose id is [LoadedModelID].
type LoadWeightsRequest struct {
	ModelID      string            `json:"model_id,omitzero"`
	SeqID        *int64            `json:"seq_id,omitzero"`
	SessionID    string            `json:"session_id,omitzero"`
	ModelSeqID   *int64            `json:"model_seq_id,omitzero"`
	BaseModel    string            `json:"base_model,omitzero"`
	UserMetadata map[string]string `json:"user_metadata,omitzero"`
	Config       *Optimizer        `json:"optimizer_config,omitzero"`
	Path         string            `json:"path"`
	Optimizer    bool              `json:"optimizer"`
	Type         string            `json:"type"`
}

// LoadedModelID is the id of a model that load_weights creates, as SDKs expect it.
func LoadedModelID(session string, modelSeq int64) string {
	return session + ":train:" + strconv.FormatInt(modelSeq, 10)
}

// TypedResult is a result that only says which call was done, and of which model.
type TypedResult struct {
	Type    string `json:"type"`
	ModelID string `json:"model_id,omitzero"`
}

// WeightsInfoRequest asks for a description of saved weights.
type WeightsInfoRequest struct {
	TinkerPath string `json:"tinker_path"`
}

// WeightsInfoResponse describes saved weights.
type WeightsInfoResponse struct {
	BaseModel string `json:"base_model"`
	IsLoRA    bool   `json:"is_lora"`
	LoRARank  *int   `json:"lora_rank"`
}

// CreateSamplingSessionRequest opens saved weights, or a base model, for sampling.
type CreateSamplingSessionRequest struct {
	SessionID            string `json:"session_id"`
	SamplingSessionSeqID int64  `json:"sampling_session_seq_id"`
	ModelPath            string `json:"model_path,omitzero"`
	BaseModel            string `json:"base_model,omitzero"`
	Type                 string `json:"type"`
}

// CreateSamplingSessionResponse answers [CreateSamplingSession].
type CreateSamplingSessionResponse struct {
	Type              string `json:"type"`
	SamplingSessionID string `json:"sampling_session_id"`
}

// SamplerPath is the path, below [Prefix], of a sampling session.
func SamplerPath(id string) string { return "/samplers/" + id }

// SamplerResponse says what a sampling session samples.
type SamplerResponse struct {
	SamplerID string  `json:"sampler_id"`
	BaseModel string  `json:"base_model"`
	ModelPath *string `json:"model_path"`
}

// RetrieveFutureRequest asks for a result.
type RetrieveFutureRequest struct {
	RequestID string `json:"request_id"`
	// AllowMetadataOnly allows the server to answer with the size of a large result first. This project's servers do not.
	AllowMetadataOnly bool `json:"allow_metadata_only,omitzero"`
}

// TryAgain says that a result is not there yet. Its status is 408, or 200 with the type [TryAgainType].
type TryAgain struct {
	Type       string `json:"type"`
	RequestID  string `json:"request_id"`
	QueueState string `json:"queue_state"`
}

// TryAgainType is the type member of [TryAgain].
const TryAgainType = "try_again"

// RequestFailed is the result of a call that failed. Code is an extension.
type RequestFailed struct {
	Error    string `json:"error"`
	Category string `json:"category"` // user, server or unknown
	Code     string `json:"code,omitzero"`
}

// Detail is the body of an error. Some servers put a list of objects into it.
type Detail struct {
	Detail string `json:"detail"`
	Code   string `json:"code,omitzero"`
}
