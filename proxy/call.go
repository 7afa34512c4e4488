package proxy

import (
	"context"
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/spool"
)

// form is a wire form of model calls. A record is made of what went to and came
// from the backend, so it is the backend's form that counts: an agent that
// speaks Messages to a Chat Completions backend is recorded as chat, with the
// translated request in call.asked.
type form string

// The wire forms that are recorded. A call's form is chat unless it says
// otherwise.
const (
	formChat       form = "chat"       // OpenAI Chat Completions
	formCompletion form = "completion" // OpenAI Completions
	formResponses  form = "responses"  // OpenAI Responses
	formMessages   form = "messages"   // Anthropic Messages
)

// accumulator is all that a record wants of a streamed reply. The relay makes
// one of the backend's form for each stream, feeds it every event that the
// backend sends, whatever the agent gets of them, and puts it into
// call.assembled before the first. Messages, choices, token ids, usage and the
// rest are read from the document that it becomes, as from a reply that came
// whole, so there is one reader for each form and none for streams.
type accumulator interface {
	// AppendJSON appends the reply that the same call would have got unstreamed:
	// one JSON object in the form's own words, token ids and log-probabilities
	// joined, members that are not known kept. Of a stream that broke off it is
	// what has come so far. It is called after the last event.
	AppendJSON(dst []byte) []byte
	// Size is about how many bytes are held.
	Size() int
	// Malformed counts events whose data was none of the form.
	Malformed() int
}

// call is one request of an agent, from its arrival until its record is stored.
// The goroutine that serves the request owns it until [Proxy.finish]; the writer
// owns it from then on.
type call struct {
	route
	method    string
	model     string
	group     *group   // the replicas of the model; nil when no model was found
	backend   *backend // that serves the call; nil until one is chosen
	whole     *backend // that is asked for the whole reply, as it may not give token ids in a stream
	request   []byte   // as the agent sent it
	asked     []byte   // the same in the backend's form, where that is another; else nil
	form      form     // of asked and of the reply
	stream    bool
	versioned string // the model's version when the call ended

	reply     []byte      // a reply that came whole, as the backend sent it
	buffers   *buffers    // whose memory it is in
	assembled accumulator // one that came as a stream
	cut       bool        // the reply is longer than what is kept of it
	status    int         // HTTP status that the agent got; 0 is none
	fault     string      // why the call failed; empty when it did not
	source    string      // whose fault
	delivered bool        // the agent got all of it

	control *Control        // of the rollout; nil for a call that generates nothing
	outcome agl.OutcomeKind // that the call brings about for its attempt; empty is none
	cached  bool            // the reply came from the cache
	tries   int             // how often the request was sent
	usage   tokenCount      // when the call has ended
	charged int64           // tokens, to the budget of its attempt

	start, sent, firstByte, lastByte, end time.Time

	cancel context.CancelCauseFunc
	charge int64 // bytes held of the budget

	// Below is the ledger's.
	attempt    *attempt // nil when the call is not recorded
	order      int64    // of the attempt's calls
	next, prev *call    // in the rollout's calls
	barriers   []*barrier

	// Below is the recorder's, under its lock until the call is queued.
	ended     bool
	queued    bool
	numbered  numbering
	number    int64         // the sequence id, once there is one
	failed    error         // why none can be had
	sequenced chan struct{} // closed when there is one, or none can be had
	uid       uint64        // the call's name in the spool
	slot      int64         // of its mark there
	marked    bool

	// Below is the writer's.
	sequence int64 // as the record says, 0 while there is none
	spans    []jsontext.Value
	ref      spool.Ref
}

func (c *call) recorded() bool { return c.attempt != nil }

// release gives back the reply's memory, once the record is built.
func (c *call) release() {
	if c.buffers != nil {
		c.buffers.put()
		c.buffers, c.reply = nil, nil
	}
}

// fail notes why the call failed; the first reason counts.
func (c *call) fail(source, reason string) {
	if c.fault == "" {
		c.fault, c.source = reason, source
	}
}

// replyStatus notes the status that the agent gets.
func (c *call) replyStatus(w http.ResponseWriter, status int) {
	c.status = status
	w.WriteHeader(status)
}
