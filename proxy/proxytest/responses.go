package proxytest

import (
	"fmt"
	"net/http"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// responsesRequest is the part of a request of the Responses API that is read.
type responsesRequest struct {
	Model        string         `json:"model"`
	Instructions string         `json:"instructions"`
	Input        jsontext.Value `json:"input"`
	Tools        []struct {
		Name string `json:"name"`
	} `json:"tools"`
	Parallel *bool `json:"parallel_tool_calls"`
	Stream   bool  `json:"stream"`
}

func (q *responsesRequest) prompt() Prompt {
	p := Prompt{Parallel: q.Parallel == nil || *q.Parallel}
	p.add(q.Instructions)
	if q.Input.Kind() == '"' {
		p.add(text(q.Input))
	}
	var items []struct {
		Type    string         `json:"type"`
		Content jsontext.Value `json:"content"`
		Output  jsontext.Value `json:"output"`
	}
	if json.Unmarshal(q.Input, &items) == nil {
		for _, item := range items {
			if item.Type == "function_call_output" {
				result := p.content(item.Output)
				p.Results = append(p.Results, result)
				p.add(result)
			} else if item.Content != nil {
				p.add(p.content(item.Content))
			}
		}
	}
	for _, t := range q.Tools {
		p.Tools = append(p.Tools, t.Name)
	}
	return p
}

// respond plays OpenAI's Responses.
func (m Model) respond(r Request, number int64) Reply {
	var q responsesRequest
	if err := json.Unmarshal(r.Body, &q); err != nil {
		return Reply{Status: http.StatusBadRequest, Body: `{"error":{"message":` + quote(err.Error()) + `,"type":"invalid_request_error","param":null,"code":null}}`}
	}
	p := q.prompt()
	a := m(p, 0)
	object := func(status, output string) string {
		in, out := utf8.RuneCountInString(p.Text), utf8.RuneCountInString(a.raw())
		usage := "null"
		if status == "completed" {
			usage = fmt.Sprintf(`{"input_tokens":%d,"input_tokens_details":{"cached_tokens":0},"output_tokens":%d,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":%d}`, in, out, in+out)
		}
		return fmt.Sprintf(`{"id":"resp_%d","object":"response","created_at":1700000000,"status":%q,"error":null,"incomplete_details":null,"instructions":null,"metadata":{},"model":%s,"output":[%s],"parallel_tool_calls":true,"temperature":1.0,"tool_choice":"auto","tools":[],"top_p":1.0,"usage":%s}`,
			number, status, quote(q.Model), output, usage)
	}
	var items []string
	if a.Text != "" || len(a.Calls) == 0 {
		items = append(items, fmt.Sprintf(`{"id":"msg_%d","type":"message","status":"completed","role":"assistant","content":[{"type":"output_text","text":%s,"annotations":[],"logprobs":[]}]}`, number, quote(a.Text)))
	}
	for i, call := range a.Calls {
		items = append(items, fmt.Sprintf(`{"id":"fc_%d_%d","type":"function_call","status":"completed","call_id":"call_%d_%d","name":%s,"arguments":%s}`, number, i, number, i, quote(call.Name), quote(call.Arguments)))
	}
	whole := object("completed", strings.Join(items, ","))
	if !q.Stream {
		return Reply{Body: whole}
	}
	s := &responseStream{}
	s.tell("response.created", `"response":`+object("in_progress", ""))
	s.tell("response.in_progress", `"response":`+object("in_progress", ""))
	for i, item := range items {
		s.item(i, item, &a, number)
	}
	s.tell("response.completed", `"response":`+whole)
	return Reply{ContentType: "text/event-stream; charset=utf-8", Pieces: s.events}
}

type responseStream struct{ events []string }

func (s *responseStream) tell(kind, members string) {
	s.events = append(s.events, fmt.Sprintf("event: %s\ndata: {\"type\":%q,\"sequence_number\":%d,%s}\n\n", kind, kind, len(s.events), members))
}

// item streams an item of the output, one character at a time.
func (s *responseStream) item(i int, item string, a *Answer, number int64) {
	if strings.Contains(item, `"type":"message"`) {
		id := fmt.Sprintf(`"item_id":"msg_%d","output_index":%d,"content_index":0`, number, i)
		s.tell("response.output_item.added", fmt.Sprintf(`"output_index":%d,"item":{"id":"msg_%d","type":"message","status":"in_progress","role":"assistant","content":[]}`, i, number))
		s.tell("response.content_part.added", id+`,"part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}`)
		for _, r := range a.Text {
			s.tell("response.output_text.delta", id+`,"delta":`+quote(string(r))+`,"logprobs":[]`)
		}
		s.tell("response.output_text.done", id+`,"text":`+quote(a.Text)+`,"logprobs":[]`)
		s.tell("response.content_part.done", id+`,"part":{"type":"output_text","text":`+quote(a.Text)+`,"annotations":[],"logprobs":[]}`)
	} else {
		n := i
		if a.Text != "" {
			n--
		}
		call := a.Calls[n]
		id := fmt.Sprintf(`"item_id":"fc_%d_%d","output_index":%d`, number, n, i)
		s.tell("response.output_item.added", fmt.Sprintf(`"output_index":%d,"item":{"id":"fc_%d_%d","type":"function_call","status":"in_progress","call_id":"call_%d_%d","name":%s,"arguments":""}`, i, number, n, number, n, quote(call.Name)))
		for _, r := range call.Arguments {
			s.tell("response.function_call_arguments.delta", id+`,"delta":`+quote(string(r)))
		}
		s.tell("response.function_call_arguments.done", id+`,"name":`+quote(call.Name)+`,"arguments":`+quote(call.Arguments))
	}
	s.tell("response.output_item.done", fmt.Sprintf(`"output_index":%d,"item":%s`, i, item))
}
