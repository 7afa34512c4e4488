package proxy

import (
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// spend counts a call towards the budget of its attempt, and has it cancelled
// when its time is over, unless stop is called before. It reports whether the
// budget was spent, in which case the call has been answered, with the error
// given.
func (p *Proxy) spend(w http.ResponseWriter, c *call) (stop func(), over bool, err error) {
	stop = func() {}
	if c.control == nil {
		return stop, false, nil
	}
	until, spent := p.controls.begin(c, &c.control.Budget)
	if spent != nil {
		return stop, true, p.answerSpent(w, c, spent)
	}
	if !until.IsZero() {
		timer := time.AfterFunc(time.Until(until), func() { c.cancel(spentOf("%v seconds is spent", c.control.Budget.Seconds)) })
		stop = func() { timer.Stop() }
	}
	return stop, false, nil
}

// answerSpent answers a call for which there is no budget left.
func (p *Proxy) answerSpent(w http.ResponseWriter, c *call, spent error) error {
	w.Header().Set(HeaderOutcome, string(agl.OutcomeBudget))
	c.outcome = agl.OutcomeBudget
	if c.control.Budget.Over == OverLength {
		c.fail(SourceGateway, spent.Error())
		return answerLength(w, c)
	}
	w.Header().Set("X-Should-Retry", "false") // clients of both families go by it
	return p.answerFailure(w, c, p.ended(c, spent))
}

// formOf is the wire form of a path's calls.
func formOf(path string) form {
	switch path {
	case "/messages":
		return formMessages
	case "/responses":
		return formResponses
	case "/completions":
		return formCompletion
	default:
		return formChat
	}
}

// lengthReply is a reply that ended for its length before it began, in the form
// of a path: whole, and as the events of a stream.
type lengthReply struct{ whole, stream string }

func lengthReplyOf(path string) lengthReply {
	const usage = `{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}`
	switch path {
	case "/messages":
		const head = `{"id":"ID","type":"message","role":"assistant","model":MODEL,"content":[],"stop_reason":`
		const tail = `,"stop_sequence":null,"usage":{"input_tokens":0,"output_tokens":0}}`
		return lengthReply{
			head + `"max_tokens"` + tail,
			"event: message_start\ndata: {\"type\":\"message_start\",\"message\":" + head + "null" + tail + "}\n\n" +
				"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"max_tokens\",\"stop_sequence\":null},\"usage\":{\"output_tokens\":0}}\n\n" +
				"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
		}
	case "/responses":
		const reply = `{"id":"ID","object":"response","created_at":CREATED,"status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"},` +
			`"instructions":null,"metadata":{},"model":MODEL,"output":[],"parallel_tool_calls":true,"temperature":null,"tool_choice":"auto","tools":[],"top_p":null,` +
			`"usage":{"input_tokens":0,"input_tokens_details":{"cached_tokens":0},"output_tokens":0,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":0}}`
		begun := strings.NewReplacer(`"incomplete"`, `"in_progress"`, `{"reason":"max_output_tokens"}`, "null").Replace(reply)
		return lengthReply{
			reply,
			"event: response.created\ndata: {\"type\":\"response.created\",\"sequence_number\":0,\"response\":" + begun + "}\n\n" +
				"event: response.incomplete\ndata: {\"type\":\"response.incomplete\",\"sequence_number\":1,\"response\":" + reply + "}\n\n",
		}
	case "/completions":
		const reply = `{"id":"ID","object":"text_completion","created":CREATED,"model":MODEL,"choices":[{"index":0,"text":"","logprobs":null,"finish_reason":"length"}],"usage":` + usage + `}`
		return lengthReply{reply, "data: " + reply + "\n\ndata: [DONE]\n\n"}
	default:
		const head = `{"id":"ID","object":"chat.completion`
		const choice = `"created":CREATED,"model":MODEL,"choices":[{"index":0,`
		return lengthReply{
			head + `",` + choice + `"message":{"role":"assistant","content":""},"logprobs":null,"finish_reason":"length"}],"usage":` + usage + `}`,
			"data: " + head + `.chunk",` + choice + `"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}` + "\n\n" +
				"data: " + head + `.chunk",` + choice + `"delta":{},"logprobs":null,"finish_reason":"length"}]}` + "\n\ndata: [DONE]\n\n",
		}
	}
}

// answerLength answers a call with an empty reply that ended for its length.
func answerLength(w http.ResponseWriter, c *call) error {
	reply := lengthReplyOf(c.path)
	text, media := reply.whole, "application/json"
	if c.stream {
		text, media = reply.stream, "text/event-stream"
	}
	model, err := jsontext.AppendQuote(nil, c.model)
	if err != nil {
		return fmt.Errorf("name of the model: %w", err)
	}
	fill := strings.NewReplacer("ID", fmt.Sprintf("budget-%d", c.start.UnixNano()), "CREATED", strconv.FormatInt(c.start.Unix(), 10), "MODEL", string(model))
	c.reply, c.form = []byte(fill.Replace(reply.whole)), formOf(c.path)
	w.Header().Set("Content-Type", media)
	c.replyStatus(w, http.StatusOK)
	_, err = io.WriteString(w, fill.Replace(text))
	return err
}
