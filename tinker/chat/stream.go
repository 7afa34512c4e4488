package chat

import (
	"fmt"
	"net/http"
)

// writeStream sends the replies as server-sent events.
func writeStream(w http.ResponseWriter, res *result, ren Renderer) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	flusher := http.NewResponseController(w)
	send := func(data []byte) error {
		if _, err := fmt.Fprintf(w, "data: %s\n\n", data); err != nil {
			return err
		}
		return flusher.Flush()
	}
	for _, chunk := range res.chunks(ren) {
		body, err := encodeResponse(chunk)
		if err == nil {
			err = send(body)
		}
		if err != nil {
			return err
		}
	}
	return send([]byte("[DONE]"))
}

// chunks are, for each choice, one with the role, one for each part, and one with the finish reason; at the end one with the usage, if the
// request asks for it. The first one carries the prompt's ids, as vLLM's does.
func (r *result) chunks(ren Renderer) []completionBody {
	var out []completionBody
	for i, sampled := range r.choices {
		add := func(d deltaBody, p *part, finish string) {
			chunk, choice := r.response("chat.completion.chunk"), r.choice(i, p, finish)
			choice.Delta = &d
			chunk.Choices = []choiceBody{choice}
			if len(out) == 0 {
				chunk.PromptTokenIDs = r.promptIDs()
			}
			out = append(out, chunk)
		}
		add(deltaBody{Role: "assistant", Content: new("")}, nil, "")
		calls := 0
		for _, p := range sampled.parts(streamAfter(ren, r.prompt)) {
			d := deltaBody{Content: &p.Content, Reasoning: p.Reasoning}
			for _, c := range p.ToolCalls {
				d.ToolCalls = append(d.ToolCalls, callDeltaBody{Index: calls, ToolCall: c})
				calls++
			}
			add(d, &p, "")
		}
		add(deltaBody{}, nil, sampled.finish)
	}
	if o := r.req.StreamOptions; o != nil && o.IncludeUsage {
		end := r.response("chat.completion.chunk")
		end.Usage = r.usage()
		out = append(out, end)
	}
	return out
}
