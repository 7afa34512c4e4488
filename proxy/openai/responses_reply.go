package openai

import (
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// ResponseReply translates the reply of a Chat Completions backend for an agent of the
// Responses API: a whole reply, an error, or the events of a stream one by one.
// [ResponsesToChat] makes it, for one reply.
type ResponseReply struct {
	object  response // the same in all events
	suffix  string   // of the items' ids
	started bool
	ended   bool
	number  int // of the next event
	items   []*outputItem
	calls   map[int]*outputItem
	tools   functions // that may be called
	finish  string
	usage   *ChatUsage
}

// response is the object of the API.
type response struct {
	ID                string              `json:"id"`
	Object            string              `json:"object"`
	CreatedAt         int64               `json:"created_at"`
	Status            string              `json:"status"`
	Background        bool                `json:"background"`
	Error             *responseError      `json:"error"`
	IncompleteDetails *responseIncomplete `json:"incomplete_details"`
	Instructions      jsontext.Value      `json:"instructions"`
	MaxOutputTokens   jsontext.Value      `json:"max_output_tokens"`
	Model             jsontext.Value      `json:"model"`
	Output            []jsontext.Value    `json:"output"`
	ParallelToolCalls bool                `json:"parallel_tool_calls"`
	PreviousResponse  jsontext.Value      `json:"previous_response_id"`
	Reasoning         responsesReasoning  `json:"reasoning"`
	Store             bool                `json:"store"`
	Temperature       jsontext.Value      `json:"temperature"`
	Text              responsesText       `json:"text"`
	ToolChoice        jsontext.Value      `json:"tool_choice"`
	Tools             []responsesTool     `json:"tools"`
	TopP              jsontext.Value      `json:"top_p"`
	Truncation        string              `json:"truncation"`
	Usage             *responseUsage      `json:"usage"`
	User              jsontext.Value      `json:"user"`
	Metadata          jsontext.Value      `json:"metadata"`
}

type responseError struct {
	Code    string `json:"code"`
	Message string `json:"message"`
}

type responseIncomplete struct {
	Reason string `json:"reason"`
}

type responseUsage struct {
	Input         int64         `json:"input_tokens"`
	InputDetails  ChatCached    `json:"input_tokens_details"`
	Output        int64         `json:"output_tokens"`
	OutputDetails ChatReasoning `json:"output_tokens_details"`
	Total         int64         `json:"total_tokens"`
}

func orNull(v jsontext.Value) jsontext.Value {
	if len(v) == 0 {
		return null
	}
	return v
}

func newResponseReply(in *responsesRequest, called functions, o ResponsesOptions) *ResponseReply {
	r := &ResponseReply{suffix: strings.TrimPrefix(o.ID, "resp_"), calls: make(map[int]*outputItem), tools: called}
	r.object = response{
		ID: o.ID, Object: "response", CreatedAt: o.Created, Instructions: orNull(in.Instructions), MaxOutputTokens: orNull(in.MaxOutputTokens),
		Model: orNull(in.Model), Output: []jsontext.Value{}, ParallelToolCalls: in.ParallelToolCalls == nil || *in.ParallelToolCalls, PreviousResponse: null,
		Reasoning: responsesReasoning{Effort: null, Summary: null}, Temperature: orNull(in.Temperature), Text: responsesText{Format: &responsesFormat{Type: "text"}},
		ToolChoice: in.ToolChoice, Tools: in.Tools, TopP: orNull(in.TopP), Truncation: "disabled", User: orNull(in.User), Metadata: in.Metadata,
	}
	if in.Reasoning != nil {
		r.object.Reasoning = responsesReasoning{Effort: orNull(in.Reasoning.Effort), Summary: orNull(in.Reasoning.Summary)}
	}
	if in.Text != nil && in.Text.Format != nil {
		r.object.Text = *in.Text
	}
	if !Given(r.object.ToolChoice) {
		r.object.ToolChoice = jsontext.Value(`"auto"`)
	}
	if r.object.Tools == nil {
		r.object.Tools = []responsesTool{}
	}
	if !Given(r.object.Metadata) {
		r.object.Metadata = jsontext.Value("{}")
	}
	return r
}

// outputItem is an item of the output that is being sent.
type outputItem struct {
	index int
	kind  string // message, reasoning, function_call or custom_tool_call
	part  string // of a message: output_text or refusal; of reasoning: reasoning_text
	id    jsontext.Value
	call  responsesItem // id, name and namespace of a call
	said  []byte        // text or arguments so far: the inside of a JSON string
	logs  list          // log-probabilities of a text
	signs list          // of reasoning: thinking blocks with their signatures
	done  bool
}

func (r *ResponseReply) item(kind, part string) *outputItem {
	prefix := map[string]string{"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_"}[kind]
	it := &outputItem{index: len(r.items), kind: kind, part: part}
	it.id = Quote(prefix + r.suffix + "_" + strconv.Itoa(it.index))
	r.items = append(r.items, it)
	return it
}

func quoted(inner []byte) jsontext.Value {
	return append(append([]byte{'"'}, inner...), '"')
}

// content returns the item's part.
func (it *outputItem) content() responsesPart {
	text := quoted(it.said)
	switch it.part {
	case "refusal":
		return responsesPart{Type: it.part, Refusal: text}
	case "output_text":
		logs := append(append([]byte{'['}, it.logs.inner...), ']')
		return responsesPart{Type: it.part, Text: text, Annotations: jsontext.Value("[]"), Logprobs: logs}
	default:
		return responsesPart{Type: it.part, Text: text}
	}
}

// wire returns the item in the form of the API. The status is in_progress, completed or
// incomplete.
func (it *outputItem) wire(to *EventWriter, status string) responsesItem {
	out := responsesItem{Type: it.kind, ID: it.id, Status: status}
	begun := status == "in_progress"
	switch it.kind {
	case "function_call", "custom_tool_call":
		out.CallID, out.Name, out.Namespace = it.call.CallID, it.call.Name, it.call.Namespace
		said := jsontext.Value(`""`)
		if !begun {
			said = it.argument()
		}
		if it.kind == "function_call" {
			out.Arguments = said
		} else {
			out.Input = said
		}
		return out
	case "message":
		out.Role = "assistant"
	default:
		out.Summary = jsontext.Value("[]")
		if it.signs.given && !begun {
			out.Encrypted = encryptedBlocks(it.signs.inner)
		}
	}
	out.Content = jsontext.Value("[]")
	if !begun {
		out.Content = to.JSON([]responsesPart{it.content()})
	}
	return out
}

// argument returns the arguments of a function, or the text that a custom tool takes.
func (it *outputItem) argument() jsontext.Value {
	if it.kind == "custom_tool_call" {
		return textOf(quoted(it.said))
	}
	return quoted(it.said)
}

// Reply appends the response for a chat completion.
func (r *ResponseReply) Reply(dst, completion []byte) ([]byte, error) {
	var in ChatReply
	if err := rawjson.Unmarshal(completion, &in); err != nil {
		return dst, DecodeError(err)
	}
	if len(in.Choices) == 0 || in.Choices[0].Message == nil {
		if Given(in.Error) {
			return dst, BackendError(in.Error)
		}
		return dst, Unsupported("choices", "the reply has none")
	}
	choice := &in.Choices[0]
	if Given(in.Model) {
		r.object.Model = in.Model
	}
	var events EventWriter // which nobody reads
	r.delta(&events, choice.Message, choice.Logprobs)
	if choice.FinishReason != nil {
		r.finish = *choice.FinishReason
	}
	r.usage = in.Usage
	if r.finishItems(&events); events.Err != nil {
		return dst, events.Err
	}
	return AppendWire(dst, r.result())
}

// result returns the object with which the stream ends.
func (r *ResponseReply) result() *response {
	out := r.object
	out.Status = "completed"
	switch r.finish {
	case "length":
		out.Status, out.IncompleteDetails = "incomplete", &responseIncomplete{Reason: "max_output_tokens"}
	case "content_filter":
		out.Status, out.IncompleteDetails = "incomplete", &responseIncomplete{Reason: "content_filter"}
	}
	if u := r.usage; u != nil {
		out.Usage = &responseUsage{Input: u.Prompt, Output: u.Completion, Total: u.Total}
		if u.PromptDetails != nil {
			out.Usage.InputDetails = *u.PromptDetails
		}
		if u.CompletionMore != nil {
			out.Usage.OutputDetails = *u.CompletionMore
		}
	}
	return &out
}

// Done reports whether the last event of the stream has been appended.
func (r *ResponseReply) Done() bool { return r.ended }

// Fail appends the event that reports an error. It is the last one.
func (r *ResponseReply) Fail(dst []byte, e Error) []byte {
	r.ended = true
	dst = append(dst, `event: error`+"\n"+`data: {"type":"error","sequence_number":`...)
	dst = strconv.AppendInt(dst, int64(r.number), 10)
	dst = append(append(dst, `,"code":`...), Quote(e.Type)...)
	dst = append(append(dst, `,"message":`...), Quote(e.Message)...)
	return append(dst, `,"param":null}`+"\n\n"...)
}

// Event appends the events for the data of one event of the backend's stream. It fails
// when the data is not a chunk of a chat completion.
func (r *ResponseReply) Event(dst, data []byte) ([]byte, error) {
	switch {
	case Blank(data) || r.ended:
		return dst, nil
	case strings.TrimSpace(string(data)) == "[DONE]":
		return r.end(dst)
	}
	var in ChatReply
	if err := rawjson.Unmarshal(data, &in); err != nil {
		return dst, DecodeError(err)
	}
	if Failed(in.Error) {
		return r.Fail(dst, ErrorFrom(0, data)), nil
	}
	to := EventWriter{Dst: dst}
	if !r.started {
		r.started = true
		if Given(in.Model) {
			r.object.Model = in.Model
		}
		begun := r.object
		begun.Status = "in_progress"
		r.tell(&to, &responseEvent{Type: "response.created", Response: &begun})
		r.tell(&to, &responseEvent{Type: "response.in_progress", Response: &begun})
	}
	if in.Usage != nil {
		r.usage = in.Usage
	}
	for i := range in.Choices {
		choice := &in.Choices[i]
		if choice.Index != 0 {
			continue
		}
		if choice.Delta != nil {
			r.delta(&to, choice.Delta, choice.Logprobs)
		}
		if choice.Finished() {
			r.finish = *choice.FinishReason
			r.finishItems(&to)
		}
	}
	return to.Dst, to.Err
}

// End appends what is missing after the backend's last event. It fails when the stream
// was not complete.
func (r *ResponseReply) End(dst []byte) ([]byte, error) {
	switch {
	case r.ended:
		return dst, nil
	case r.finish == "":
		return dst, Unsupported("stream", "it ended without a finish reason")
	}
	return r.end(dst)
}

func (r *ResponseReply) end(dst []byte) ([]byte, error) {
	if !r.started {
		return dst, Unsupported("stream", "it ended before it began")
	}
	to := EventWriter{Dst: dst}
	if r.finishItems(&to); to.Err != nil {
		return to.Dst, to.Err
	}
	r.ended = true
	result := r.result()
	r.tell(&to, &responseEvent{Type: "response." + result.Status, Response: result})
	return to.Dst, to.Err
}

// responseEvent is an event of the API's streams.
type responseEvent struct {
	Type         string         `json:"type"`
	Number       int            `json:"sequence_number"`
	Response     *response      `json:"response,omitzero"`
	OutputIndex  *int           `json:"output_index,omitzero"`
	Item         *responsesItem `json:"item,omitzero"`
	ItemID       jsontext.Value `json:"item_id,omitzero"`
	ContentIndex *int           `json:"content_index,omitzero"`
	Part         *responsesPart `json:"part,omitzero"`
	Delta        jsontext.Value `json:"delta,omitzero"`
	Text         jsontext.Value `json:"text,omitzero"`
	Refusal      jsontext.Value `json:"refusal,omitzero"`
	Name         jsontext.Value `json:"name,omitzero"`
	Arguments    jsontext.Value `json:"arguments,omitzero"`
	Input        jsontext.Value `json:"input,omitzero"`
	Logprobs     jsontext.Value `json:"logprobs,omitzero"`
}

func (r *ResponseReply) tell(to *EventWriter, e *responseEvent) {
	if to.Err == nil {
		e.Number = r.number
		r.number++
		to.Event(e.Type, e)
	}
}

func (r *ResponseReply) delta(to *EventWriter, d *ChatMessage, logprobs jsontext.Value) {
	for _, piece := range [...]struct {
		kind, part   string
		text, blocks jsontext.Value
	}{{"reasoning", "reasoning_text", d.ReasoningText(), d.ThinkingBlocks}, {"message", "output_text", d.ContentText(), nil}, {"message", "refusal", d.Refusal, nil}} {
		if !IsText(piece.text) && !Given(piece.blocks) {
			continue
		}
		var it *outputItem
		if n := len(r.items); n > 0 {
			it = r.items[n-1]
		}
		if it == nil || it.kind != piece.kind || it.part != piece.part || it.done { // else the text goes on
			it = r.item(piece.kind, piece.part)
			r.begin(to, it)
		}
		it.signs.add(piece.blocks)
		if !IsText(piece.text) {
			continue
		}
		var logs jsontext.Value
		if piece.part == "output_text" {
			logs = contentLogprobs(logprobs)
			it.logs.add(logs)
		}
		r.say(to, it, piece.text, logs)
	}
	for i, c := range d.ToolCalls {
		index := i
		if c.Index != nil {
			index = *c.Index
		}
		it := r.calls[index]
		if it == nil || c.Follows(it.call.CallID) {
			it = r.callItem(&c)
			r.calls[index] = it
			r.begin(to, it)
		}
		if IsText(c.Function.Arguments) {
			r.say(to, it, c.Function.Arguments, nil)
		}
	}
}

// callItem returns the item of a call that begins.
func (r *ResponseReply) callItem(c *ChatCall) *outputItem {
	kind, name, namespace := "function_call", c.Function.Name, jsontext.Value(nil)
	if t := r.tools[Unquote(name)]; t != nil {
		name, namespace = t.Name, t.Namespace
		if t.Type == "custom" {
			kind = "custom_tool_call"
		}
	}
	it := r.item(kind, "")
	it.call = responsesItem{CallID: orNull(c.ID), Name: orNull(name), Namespace: namespace}
	return it
}

// contentLogprobs returns the log-probabilities of a chat completion, which the
// Responses API spells the same.
func contentLogprobs(logprobs jsontext.Value) jsontext.Value {
	if found, _ := rawjson.Get(logprobs, "content"); found.Kind() == '[' {
		return found
	}
	return jsontext.Value("[]")
}

// begin sends the start of an item, after the ends of the texts before it.
func (r *ResponseReply) begin(to *EventWriter, it *outputItem) {
	for _, before := range r.items[:it.index] {
		if before.part != "" { // calls may go on in parallel
			r.close(to, before)
		}
	}
	wire := it.wire(to, "in_progress")
	r.tell(to, &responseEvent{Type: "response.output_item.added", OutputIndex: &it.index, Item: &wire})
	if it.part != "" {
		part := it.content()
		r.tell(to, &responseEvent{Type: "response.content_part.added", ItemID: it.id, OutputIndex: &it.index, ContentIndex: new(int), Part: &part})
	}
}

// say sends a piece of an item. The text that a custom tool takes is sent at its end, because the pieces are those of arguments.
func (r *ResponseReply) say(to *EventWriter, it *outputItem, piece, logs jsontext.Value) {
	it.said = append(it.said, piece[1:len(piece)-1]...)
	if it.kind == "custom_tool_call" {
		return
	}
	e := &responseEvent{Type: "response.function_call_arguments.delta", ItemID: it.id, OutputIndex: &it.index, Delta: piece, Logprobs: logs}
	if it.part != "" {
		e.Type, e.ContentIndex = "response."+it.part+".delta", new(int)
	}
	r.tell(to, e)
}

func (r *ResponseReply) finishItems(to *EventWriter) {
	for _, it := range r.items {
		r.close(to, it)
	}
}

// close sends the end of an item.
func (r *ResponseReply) close(to *EventWriter, it *outputItem) {
	if it.done {
		return
	}
	it.done = true
	status := "completed"
	if r.finish == "length" && it.index == len(r.items)-1 {
		status = "incomplete"
	}
	e := &responseEvent{Type: "response.function_call_arguments.done", ItemID: it.id, OutputIndex: &it.index}
	switch {
	case it.kind == "custom_tool_call":
		text := it.argument()
		r.tell(to, &responseEvent{Type: "response.custom_tool_call_input.delta", ItemID: it.id, OutputIndex: &it.index, Delta: text})
		e.Type, e.Input = "response.custom_tool_call_input.done", text
	case it.part == "":
		e.Name, e.Arguments = it.call.Name, it.argument()
	default:
		part := it.content()
		e.Type, e.ContentIndex, e.Text, e.Refusal, e.Logprobs = "response."+it.part+".done", new(int), part.Text, part.Refusal, part.Logprobs
		r.tell(to, e)
		e = &responseEvent{Type: "response.content_part.done", ItemID: it.id, OutputIndex: &it.index, ContentIndex: new(int), Part: &part}
	}
	r.tell(to, e)
	wire := it.wire(to, status)
	for len(r.object.Output) <= it.index {
		r.object.Output = append(r.object.Output, null)
	}
	r.object.Output[it.index] = to.JSON(&wire)
	r.tell(to, &responseEvent{Type: "response.output_item.done", OutputIndex: &it.index, Item: &wire})
}
