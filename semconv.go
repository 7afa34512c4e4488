package agl

// Span names that have a meaning for agl.
const (
	SpanAnnotation = "agentlightning.annotation"
	SpanMessage    = "agentlightning.message"
	SpanObject     = "agentlightning.object"
	SpanException  = "agentlightning.exception"
	SpanOperation  = "agentlightning.operation"
	SpanReward     = "agentlightning.reward"
	// SpanTraining holds what a learner computed for an attempt in one step, for people to look at: see
	// AttrTrainingCalls. For stores it is no heartbeat of the attempt, and no event.
	SpanTraining = "agentlightning.training"
)

// Resource attributes that say which attempt a span belongs to.
const (
	AttrRolloutID      = "agentlightning.rollout_id"
	AttrAttemptID      = "agentlightning.attempt_id"
	AttrSpanSequenceID = "agentlightning.span_sequence_id"
	AttrTracerName     = "agentlightning.tracer.name"
)

// Attributes and attribute prefixes of agl's own spans.
const (
	AttrReward = "agentlightning.reward" // .{i}.name, .{i}.value
	// AttrRewardSource, AttrRewardPriority, AttrRewardMessage, AttrRewardCall, AttrRewardSpan and AttrRewardTurn are
	// set by [AddReward].
	AttrRewardSource    = "agentlightning.reward_source"
	AttrRewardPriority  = "agentlightning.reward_priority"
	AttrRewardMessage   = "agentlightning.reward_message"
	AttrRewardCall      = "agentlightning.reward_call"
	AttrRewardSpan      = "agentlightning.reward_span"
	AttrRewardTurn      = "agentlightning.reward_turn"
	AttrLink            = "agentlightning.link" // .{i}.key_match, .{i}.value_match
	AttrTag             = "agentlightning.tag"  // .{i}
	AttrMessageBody     = "agentlightning.message.body"
	AttrObjectType      = "agentlightning.object.type"
	AttrObjectLiteral   = "agentlightning.object.literal"
	AttrObjectJSON      = "agentlightning.object.json"
	AttrOperationName   = "agentlightning.operation.name"
	AttrOperationInput  = "agentlightning.operation.input"
	AttrOperationOutput = "agentlightning.operation.output"
	// AttrModelVersion and AttrModelVersionEnd are the versions of the model at the start and at the end of a call: the
	// resources id, if the model came from the store.
	AttrModelVersion    = "agentlightning.model.version"
	AttrModelVersionEnd = "agentlightning.model.version_end"
	// AttrTurn names the turn of the conversation that a model call belongs to; the program chooses the name.
	// AttrTurnType is [TurnSide] for a call beside the conversation, such as one that generates its title.
	AttrTurn     = "agentlightning.turn"
	AttrTurnType = "agentlightning.turn_type"
)

// Attributes of SpanTraining.
const (
	AttrTrainingRun  = "agentlightning.training.run"
	AttrTrainingStep = "agentlightning.training.step"
	AttrTrainingRole = "agentlightning.training.role" // the role that was trained, in a run with several
	// AttrTrainingCalls is JSON text: a list of objects, one for each model call that was trained on.
	//
	//	span_id     of the call
	//	advantage   of its tokens, if it is the same for all
	//	advantages  of each of its tokens otherwise: a series
	//	log_ratios  of each token, the log-probability under the weights in training minus that under those that sampled: a series.
	//	            It is left out if the learner has not computed it.
	//	left_out    base64 of a bit for each token, the lowest of each byte first: 1 for tokens that were not trained on.
	//	            It is left out if there are none.
	//
	// A series is {"scale": s, "data": base64}, of a little-endian integer of 16 bits for each token, which is multiplied by s.
	AttrTrainingCalls = "agentlightning.training.calls"
)

// TurnSide marks model calls that are recorded but not learned from.
const TurnSide = "side"

// Attributes of model calls: the names of OpenTelemetry's gen_ai conventions
// and of the instrumentations that the adapters read.
const (
	AttrGenAISystem           = "gen_ai.system"
	AttrGenAIOperation        = "gen_ai.operation.name"
	AttrGenAIPrompt           = "gen_ai.prompt"     // .{i}.role, .{i}.content, …
	AttrGenAICompletion       = "gen_ai.completion" // .{i}.role, .{i}.content, .{i}.finish_reason, …
	AttrGenAIRequest          = "gen_ai.request"
	AttrGenAIResponse         = "gen_ai.response"
	AttrGenAIRequestModel     = "gen_ai.request.model"
	AttrGenAIResponseID       = "gen_ai.response.id"
	AttrGenAIResponseModel    = "gen_ai.response.model"
	AttrGenAIInputTokens      = "gen_ai.usage.input_tokens"
	AttrGenAIOutputTokens     = "gen_ai.usage.output_tokens"
	AttrGenAIPromptTokens     = "gen_ai.usage.prompt_tokens"
	AttrGenAICompletionTokens = "gen_ai.usage.completion_tokens"
	AttrGenAITotalTokens      = "gen_ai.usage.total_tokens"
	AttrPromptTokenIDs        = "prompt_token_ids"
	AttrResponseTokenIDs      = "response_token_ids"
	AttrLogprobsContent       = "logprobs.content"
	AttrLogprobsRefusal       = "logprobs.refusal"
)

// Span names of model calls.
const (
	// SpanChatCompletion is the name that instrumentations of the OpenAI SDKs use.
	SpanChatCompletion = "openai.chat.completion"
	SpanProxyRequest   = "Received Proxy Server Request"
	SpanLiteLLMRequest = "litellm_request"
	SpanRawRequest     = "raw_gen_ai_request"
)

// Attributes of an exception span or event.
const (
	AttrExceptionType       = "exception.type"
	AttrExceptionMessage    = "exception.message"
	AttrExceptionEscaped    = "exception.escaped"
	AttrExceptionStacktrace = "exception.stacktrace"
)

// MetadataOutcome is the key of an attempt's metadata that holds its [Outcome].
const MetadataOutcome = "agentlightning.outcome"
