package chat

import (
	"log/slog"
	"net/http"

	"github.com/go-json-experiment/json"
)

func (s *Server) writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		s.cfg.Logger.Error("chat: encode reply", slog.Any("error", err))
		status = http.StatusInternalServerError
		body = []byte(`{"error":{"message":"the reply could not be encoded","type":"server_error","param":null,"code":"internal_error"}}`)
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	if _, err := w.Write(body); err != nil {
		s.cfg.Logger.Debug("chat: reply not delivered", slog.Any("error", err))
	}
}

func (s *Server) writeCompletion(w http.ResponseWriter, res *result) {
	out := completion{
		ID: res.id, Object: "chat.completion", Created: res.created, Model: res.req.Model,
		Usage: res.usage(), SystemFingerprint: res.version,
	}
	if res.req.ReturnTokenIDs {
		out.PromptTokenIDs = res.prompt
	}
	for i, r := range res.replies {
		c := choice{
			Index: i, FinishReason: r.finish,
			Message:  replyMessage{Role: "assistant", Content: &r.message.Content, ToolCalls: r.message.ToolCalls},
			Logprobs: s.logprobs(res.req, r, 0, len(r.tokens)),
		}
		if len(r.message.ToolCalls) > 0 && r.message.Content == "" {
			c.Message.Content = nil
		}
		if res.req.ReturnTokenIDs {
			c.TokenIDs = r.tokens
		}
		out.Choices = append(out.Choices, c)
	}
	s.writeJSON(w, http.StatusOK, out)
}

// logprobs describes tokens[begin:end] of a reply, if the request asks for it.
func (s *Server) logprobs(req *request, r reply, begin, end int) *logprobs {
	if !req.Logprobs {
		return nil
	}
	out := &logprobs{Content: make([]tokenLogprob, 0, end-begin)}
	for i := begin; i < end; i++ {
		text := s.cfg.Tokenizer.Decode(r.tokens[i : i+1])
		bytes := make([]int, len(text))
		for j := range len(text) {
			bytes[j] = int(text[j])
		}
		out.Content = append(out.Content, tokenLogprob{Token: text, Logprob: r.logprobs[i], Bytes: bytes, TopLogprobs: []struct{}{}})
	}
	return out
}

// writeStream sends the replies as server-sent events: for each choice a chunk with the role, one per piece
// of content, one with tool calls if there are any, and one with the finish reason. The first chunk of all
// carries the prompt's ids, as vLLM's does.
func (s *Server) writeStream(w http.ResponseWriter, res *result) error {
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
	w.WriteHeader(http.StatusOK)
	e := &eventWriter{w: w, flush: http.NewResponseController(w), res: res}
	empty := ""
	for i, r := range res.replies {
		e.send(chunkChoice{Index: i, Delta: delta{Role: "assistant", Content: &empty}})
		for _, p := range r.pieces {
			c := chunkChoice{Index: i, Delta: delta{Content: &p.text}, Logprobs: s.logprobs(res.req, r, p.begin, p.end)}
			if res.req.ReturnTokenIDs {
				c.TokenIDs = r.tokens[p.begin:p.end]
			}
			e.send(c)
		}
		if len(r.message.ToolCalls) > 0 {
			var calls []toolCallDelta
			for j, call := range r.message.ToolCalls {
				calls = append(calls, toolCallDelta{Index: j, ToolCall: call})
			}
			e.send(chunkChoice{Index: i, Delta: delta{ToolCalls: calls}})
		}
		e.send(chunkChoice{Index: i, FinishReason: &r.finish})
	}
	if o := res.req.StreamOptions; o != nil && o.IncludeUsage {
		u := res.usage()
		e.write(chunk{Choices: []chunkChoice{}, Usage: &u})
	}
	e.raw([]byte("[DONE]"))
	return e.err
}

// eventWriter writes chunks of one reply. After an error it does nothing.
type eventWriter struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	res   *result
	begun bool
	err   error
}

func (e *eventWriter) send(c chunkChoice) {
	out := chunk{Choices: []chunkChoice{c}}
	if !e.begun && e.res.req.ReturnTokenIDs {
		out.PromptTokenIDs = e.res.prompt
	}
	e.begun = true
	e.write(out)
}

func (e *eventWriter) write(c chunk) {
	c.ID, c.Object, c.Created = e.res.id, "chat.completion.chunk", e.res.created
	c.Model, c.SystemFingerprint = e.res.req.Model, e.res.version
	data, err := json.Marshal(c)
	if err != nil {
		e.err = err
		return
	}
	e.raw(data)
}

func (e *eventWriter) raw(data []byte) {
	if e.err != nil {
		return
	}
	event := make([]byte, 0, len(data)+8)
	event = append(append(append(event, "data: "...), data...), "\n\n"...)
	if _, e.err = e.w.Write(event); e.err == nil {
		e.err = e.flush.Flush()
	}
}
