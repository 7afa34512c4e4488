package chat

import "net/http"

// writeStream sends the replies as server-sent events: for each choice a chunk with the role, one for each part, and one
// with the finish reason. The first chunk carries the prompt's ids, as vLLM's does.
func writeStream(w http.ResponseWriter, res *result, ren Renderer) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	e := &eventWriter{w: w, flush: http.NewResponseController(w), res: res}
	for i, r := range res.choices {
		e.send(i, deltaBody{Role: "assistant", Content: new("")}, nil, "")
		calls := 0
		for _, p := range r.parts(streamAfter(ren, res.prompt)) {
			e.send(i, deltaBody{Content: &p.Content, Reasoning: p.Reasoning, ToolCalls: callDeltas(p.ToolCalls, calls)}, &p, "")
			calls += len(p.ToolCalls)
		}
		e.send(i, deltaBody{}, nil, r.finish)
	}
	if o := res.req.StreamOptions; o != nil && o.IncludeUsage {
		end := res.response("chat.completion.chunk")
		end.Usage = res.usage()
		e.chunk(end)
	}
	e.event([]byte("[DONE]"))
	return e.err
}

// eventWriter writes the chunks of one response. After an error it does nothing.
type eventWriter struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	res   *result
	begun bool
	err   error
}

func callDeltas(calls []ToolCall, first int) []callDeltaBody {
	var out []callDeltaBody
	for i, c := range calls {
		out = append(out, callDeltaBody{Index: first + i, ToolCall: c})
	}
	return out
}

// send writes a chunk of one choice: its delta, and the tokens that the delta comes from.
func (e *eventWriter) send(index int, d deltaBody, p *part, finish string) {
	out := e.res.response("chat.completion.chunk")
	c := e.res.choice(index, p, finish)
	c.Delta = &d
	out.Choices = []choiceBody{c}
	if !e.begun {
		out.PromptTokenIDs = e.res.promptIDs()
	}
	e.begun = true
	e.chunk(out)
}

func (e *eventWriter) chunk(c completionBody) {
	if e.err != nil {
		return
	}
	body, err := encodeResponse(c)
	if err != nil {
		e.err = err
		return
	}
	e.event(body)
}

func (e *eventWriter) event(data []byte) {
	if e.err != nil {
		return
	}
	event := append(append(append(make([]byte, 0, len(data)+8), "data: "...), data...), "\n\n"...)
	if _, e.err = e.w.Write(event); e.err == nil {
		e.err = e.flush.Flush()
	}
}
