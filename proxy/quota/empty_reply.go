package quota

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/agl-go/agl/proxy/openai"
)

// EmptyReply is the reply of [OverLength]: empty, with the finish reason length.
type EmptyReply struct {
	Body []byte // in the form of the path's API
	// Sent is what the agent gets: Body, or the events of a stream.
	Sent        []byte
	ContentType string // of Sent
}

// NewEmptyReply returns the reply to a call of a path, such as /chat/completions.
func NewEmptyReply(path, model string, stream bool, now time.Time) EmptyReply {
	whole, events := emptyReply(path)
	fill := strings.NewReplacer("ID", fmt.Sprintf("budget-%d", now.UnixNano()), "CREATED", strconv.FormatInt(now.Unix(), 10), "MODEL", string(openai.Quote(model)))
	r := EmptyReply{Body: []byte(fill.Replace(whole)), ContentType: "application/json"}
	r.Sent = r.Body
	if stream {
		r.Sent, r.ContentType = []byte(fill.Replace(events)), "text/event-stream"
	}
	return r
}

// emptyReply returns the reply to calls of a path and the events of its stream, with
// the placeholders ID, CREATED and MODEL.
func emptyReply(path string) (whole, events string) {
	const usage = `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`
	switch path {
	case "/messages":
		const head = `{"id":"ID","type":"message","role":"assistant","model":MODEL,"content":[],"stop_reason":`
		const tail = `,"stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0}}`
		return head + `"max_tokens"` + tail,
			"event: message_start\ndata: {\"type\":\"message_start\",\"message\":" + head + "null" + tail + "}\n\n" +
				"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":0}}\n\n" +
				"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"
	case "/responses":
		const reply = `{"id":"ID","object":"response","created_at":CREATED,"status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"},` +
			`"instructions":null,"metadata":{},"model":MODEL,"output":[],"parallel_tool_calls":true,"temperature":null,"tool_choice":"auto","tools":[],"top_p":null,` +
			`"usage":{"input_tokens":0,"input_tokens_details":{"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}}`
		begun := strings.NewReplacer(`"incomplete"`, `"in_progress"`, `{"reason":"max_output_tokens"}`, "null").Replace(reply)
		return reply,
			"event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":" + begun + "}\n\n" +
				"event: response.incomplete\ndata: {\"type\":\"response.incomplete\",\"sequence_number\":1,\"response\":" + reply + "}\n\n"
	case "/completions":
		const reply = `{"id":"ID","object":"text_completion","created":CREATED,"model":MODEL,"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}],"usage":` + usage + `}`
		return reply, "data: " + reply + "\n\ndata: [DONE]\n\n"
	default:
		const head = `{"id":"ID","object":"chat.completion`
		const choice = `"created":CREATED,"model":MODEL,"choices":[{"index":0,`
		return head + `",` + choice + `"message":{"role":"assistant","content":""},"logprobs":null,"finish_reason":"length"}],"usage":` + usage + `}`,
			"data: " + head + `.chunk",` + choice + `"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}` + "\n\n" +
				"data: " + head + `.chunk",` + choice + `"delta":{},"logprobs":null,"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n"
	}
}
