// Package record turns the data of one model call into spans. It is pure: the same
// [Input] always gives the same spans, without a clock or I/O, whatever bytes the agent
// or the backend sent.
//
//	var b record.Builder
//	buf, made := b.Append(buf[:0], &input, &record.Position{SequenceID: 7, IDs: ids})
//	store(made.Spans)
//
// A call becomes three spans of one trace, with the names and attributes that
// Agent-lightning's readers know from LiteLLM: the request to the proxy, the model call
// in it, and the raw exchange with the backend. They are built as JSON, in the form in
// which the store receives them.
//
// The package knows the wire forms of requests and replies. It must not know how
// a call was made, where its record is stored, or how it is used for training.
package record

import (
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
)

// Form is the API whose wire form a recorded request and reply have: the backend's,
// which may differ from the agent's.
type Form string

// The forms that are recorded.
const (
	Chat       Form = "chat"       // OpenAI Chat Completions
	Completion Form = "completion" // OpenAI Completions
	Responses  Form = "responses"  // OpenAI Responses
	Messages   Form = "messages"   // Anthropic Messages
)

// The sources of faults.
const (
	SourceGateway  = "gateway"
	SourceProvider = "provider"
)

// Assembled is a reply that was put together from the events of a stream.
type Assembled interface {
	// AppendJSON appends the reply that the same call would have returned unstreamed,
	// one JSON object. For a stream that broke off it has what was received.
	AppendJSON(dst []byte) []byte
	// Malformed returns the number of events that could not be parsed.
	Malformed() int
	// Failure returns the error that the backend sent in the stream, as JSON, or nil.
	Failure() []byte
}

// Input describes one call. It must not change once the recorder has it.
type Input struct {
	RolloutID, AttemptID string
	Method, Path         string
	Model                string // as the agent named it
	Form                 Form   // of BackendRequest and of the reply; empty is Chat
	Stream               bool   // the agent asked for a stream
	Turn, TurnType       string // of the conversation, as the agent's headers say; may be empty

	Request        []byte          // as the agent sent it
	BackendRequest []byte          // the same in the backend's form; nil if that is the agent's form
	Checked        *openai.Checked // the request in the backend's form; nil if that was not checked, or is not valid JSON
	Reply          []byte          // a reply that did not stream, as the backend sent it
	Streamed       Assembled       // a reply that came as a stream; else nil
	Cut            bool            // only the first part of the reply was kept

	Status    int             // HTTP status that the agent got; 0 is none
	Delivered bool            // the agent got the whole reply
	Fault     string          // why the call failed; empty when it did not
	Source    string          // of the fault: SourceGateway or SourceProvider
	Outcome   agl.OutcomeKind // the attempt's outcome because of this call; empty is none
	Cached    bool            // the reply came from the proxy's cache
	Tries     int             // how often the request was sent

	Backend             string // URL of the backend, without a password; empty when none was chosen
	Version, VersionEnd string // of the model, when the call began and when it ended

	// Start is when the call arrived, Sent when its last request was sent to a backend,
	// FirstByte and LastByte when the first and the last byte of the reply arrived, and
	// End when the call ended. A time is zero if that did not happen.
	Start, Sent, FirstByte, LastByte, End time.Time
}

// Fail sets why the call failed, unless that is known already.
func (in *Input) Fail(source, reason string) {
	if in.Fault == "" {
		in.Fault, in.Source = reason, source
	}
}

// Position is the place of a call within its attempt. The recorder adds it to an Input.
type Position struct {
	SequenceID int64 // 0 while the call has none
	// Name makes response ids unique. No other call of the attempt has it.
	Name string
	IDs  SpanIDs
	// Previous holds the token ids of the previous call; nil if there are none.
	Previous *Tokens
	// Seen reports whether another call of the attempt had this response id; nil stands
	// for "never".
	Seen func(responseID string) bool
}

// SpansPerCall is the number of spans that record a call.
const SpansPerCall = 3

// SpanIDs are the ids of a call's trace and of its spans, in hexadecimal.
type SpanIDs struct {
	Trace string
	Spans [SpansPerCall]string
}

// The proxy's own attributes of the model call's span.
const (
	// AttrDelivered is false when the agent left before it had the whole reply.
	AttrDelivered = "agentlightning.proxy.delivered"
	// AttrDriftIndex is the first index at which the prompt's ids differ from the ids
	// of the attempt's previous call, prompt and reply; -1 when they extend them. It
	// is absent when there is nothing to compare.
	AttrDriftIndex = "agentlightning.proxy.drift_index"
	// AttrBackend is the base URL that served the call.
	AttrBackend = "agentlightning.proxy.backend"
	// AttrQueueSeconds is the time before the request was sent to the backend,
	// AttrFirstByteSeconds and AttrTotalSeconds are the times from then to the first
	// and the last byte of its reply.
	AttrQueueSeconds     = "agentlightning.proxy.queue_seconds"
	AttrFirstByteSeconds = "agentlightning.proxy.first_byte_seconds"
	AttrTotalSeconds     = "agentlightning.proxy.total_seconds"
	// AttrStatus is the status of the answer that the agent got.
	AttrStatus = "http.response.status_code"
	// AttrErrorSource is SourceGateway or SourceProvider, for a call that failed.
	AttrErrorSource = "agentlightning.proxy.error_source"
	// AttrTries is how often the request was sent, if more than once.
	AttrTries = "agentlightning.proxy.tries"
	// AttrCached says that the reply came from the proxy's cache.
	AttrCached = "agentlightning.proxy.cached"
	// AttrOutcome is the outcome of the attempt because of this call: "budget" if the
	// budget was spent; and, if the agent fails after it, "model_error" or
	// "context_overflow".
	AttrOutcome = "agentlightning.proxy.outcome"
	// AttrReplyCut says that the reply was too long to be recorded whole.
	AttrReplyCut = "agentlightning.proxy.reply_cut"
	// AttrRequestText and AttrReplyText hold a body that is not JSON.
	AttrRequestText = "agentlightning.proxy.request_text"
	AttrReplyText   = "agentlightning.proxy.reply_text"
	// AttrVersionSpans says which weights sampled which tokens of the first choice, as
	// SGLang reports it: a JSON list of {"version","start","end"}, half-open ranges of
	// token indices in the reply.
	AttrVersionSpans = "agentlightning.model.version_spans"
)
