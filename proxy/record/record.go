package record

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spanjson"
	"github.com/agl-go/agl/proxy/openai"
)

const (
	attrStreaming = "llm.is_streaming"
	// rawPrefix is what readers of these spans look for, whatever the provider is.
	rawPrefix  = "llm.hosted_vllm"
	attrMethod = "http.request.method"
	attrPath   = "url.path"
	tracerName = "agl.proxy"
)

// Builder turns inputs into spans in their wire form. Its zero value is ready. It
// reuses its buffers, and belongs to one goroutine at a time.
type Builder struct {
	reply    []byte // a reply assembled from a stream
	resource []byte // the attributes of the spans' resource
}

// keptBytes is the largest buffer that a Builder keeps.
const keptBytes = 2 << 20

// Made is the result of [Builder.Append].
type Made struct {
	Spans      []jsontext.Value // share the memory of dst
	ResponseID string           // empty when the call has none
	Tokens     *Tokens          // nil when the backend gave none; shares the memory of the reply
	// Counted is how many tokens the backend counts in a reply of which it gives the ids of fewer, but at least one, and
	// Given is how many those are. Both are 0 otherwise.
	Counted, Given int64
}

// Append appends the spans of a call to dst, each a JSON document.
func (b *Builder) Append(dst []byte, in *Input, at *Position) ([]byte, Made) {
	x := b.read(in, at.Previous)
	x.identify(in, at)
	status := agl.SpanStatus{Code: agl.StatusOK}
	if x.fault != "" {
		description := x.fault
		if x.message != "" && !strings.HasSuffix(description, x.message) {
			description += ": " + x.message
		}
		status = agl.SpanStatus{Code: agl.StatusError, Description: agl.Some(description)}
	}
	resource := rawjson.NewObject(b.resource[:0])
	resource.String("service.name", "agl-proxy")
	resource.String(agl.AttrTracerName, tracerName)
	resource.String(agl.AttrRolloutID, in.RolloutID)
	resource.String(agl.AttrAttemptID, in.AttemptID)
	resource.Int(agl.AttrSpanSequenceID, at.SequenceID)
	b.resource = resource.End()
	s := agl.Span{
		RolloutID: in.RolloutID, AttemptID: in.AttemptID, SequenceID: at.SequenceID, TraceID: at.IDs.Trace,
		Status: status, Resource: agl.SpanResource{Attributes: b.resource}, Context: &agl.SpanContext{TraceID: at.IDs.Trace},
	}
	spans := make([]jsontext.Value, 0, SpansPerCall)
	span := func(name string, start, end time.Time, write func(a *attrs)) {
		if len(spans) > 0 {
			s.ParentID, s.Parent = agl.Some(s.SpanID), &agl.SpanContext{TraceID: at.IDs.Trace, SpanID: s.SpanID}
		}
		s.Name, s.SpanID = name, at.IDs.Spans[len(spans)]
		s.Context.SpanID = s.SpanID
		s.StartTime, s.EndTime = agl.Some(agl.TimestampOf(start)), agl.Some(agl.TimestampOf(end))
		from := len(dst)
		dst = spanjson.Append(dst, &s, func(dst []byte) []byte {
			a := attrs{rawjson.NewObject(dst)}
			write(&a)
			return a.End()
		})
		spans = append(spans, dst[from:len(dst):len(dst)])
	}
	sent, last := in.Sent, in.LastByte
	if sent.IsZero() {
		sent = in.End
	}
	if last.IsZero() {
		last = in.End
	}
	// Readers sort spans of one sequence id by their start, so parents start first.
	raw := sent.Add(time.Microsecond)
	rawEnd := last
	if raw.After(last) {
		rawEnd = raw
	}
	span(agl.SpanProxyRequest, in.Start, in.End, func(a *attrs) {
		a.String(attrMethod, in.Method)
		a.String(attrPath, in.Path)
		if in.Status > 0 {
			a.Int(AttrStatus, int64(in.Status))
		}
	})
	span(agl.SpanLiteLLMRequest, sent, last, func(a *attrs) { modelCall(a, in, at, &x) })
	span(agl.SpanRawRequest, raw, rawEnd, func(a *attrs) { rawExchange(a, &x) })
	b.trim()
	made := Made{Spans: spans, ResponseID: x.responseID, Counted: x.counted, Given: x.given}
	if x.tokens.given() {
		made.Tokens = &x.tokens
	}
	return dst, made
}

// AppendAttributes appends the attributes of the model call's span, for a caller that records
// calls in a span of its own.
func (b *Builder) AppendAttributes(dst []byte, in *Input, at *Position) []byte {
	x := b.read(in, at.Previous)
	x.identify(in, at)
	a := attrs{rawjson.NewObject(dst)}
	modelCall(&a, in, at, &x)
	b.trim()
	return a.End()
}

// trim drops a large buffer.
func (b *Builder) trim() {
	if cap(b.reply) > keptBytes {
		b.reply = nil
	}
}

// identify makes the call's response id unique within the attempt, because readers treat
// two calls with the same id as one.
func (x *parsedCall) identify(in *Input, at *Position) {
	if in.Status >= 300 || !x.replied {
		return
	}
	if x.responseID == "" {
		x.responseID = "chatcmpl-" + at.Name
	}
	if at.Seen != nil && at.Seen(x.responseID) {
		x.responseID += "#" + at.Name
	}
}

// modelCall writes the attributes of the span that stands for the model call.
func modelCall(a *attrs, in *Input, at *Position, x *parsedCall) {
	system, operation := "openai", "chat"
	switch in.Form {
	case Messages:
		system = "anthropic"
	case Completion:
		operation = "text_completion"
	case Chat, Responses:
	}
	a.String(agl.AttrGenAISystem, system)
	a.String(agl.AttrGenAIOperation, operation)
	a.Bool(attrStreaming, in.Stream)
	if in.Turn != "" {
		a.String(agl.AttrTurn, in.Turn)
	}
	if in.TurnType != "" {
		a.String(agl.AttrTurnType, in.TurnType)
	}
	writeRequest(a, in)
	writeReply(a, x)
	writeTokens(a, at, x)
	if in.Backend != "" {
		a.String(agl.AttrModelVersion, in.Version)
		a.String(agl.AttrModelVersionEnd, in.VersionEnd)
		a.String(AttrBackend, in.Backend)
	}
	if in.Status > 0 {
		a.Int(AttrStatus, int64(in.Status))
	}
	a.Bool(AttrDelivered, in.Delivered)
	if !in.Sent.IsZero() {
		a.seconds(AttrQueueSeconds, in.Sent.Sub(in.Start).Seconds())
		for _, t := range [...]struct {
			key string
			at  time.Time
		}{{AttrFirstByteSeconds, in.FirstByte}, {AttrTotalSeconds, in.LastByte}} {
			if !t.at.IsZero() {
				a.seconds(t.key, t.at.Sub(in.Sent).Seconds())
			}
		}
	}
	if x.fault != "" {
		a.String(AttrErrorSource, x.source)
	}
	if in.Cut {
		a.Bool(AttrReplyCut, true)
	}
	if in.Tries > 1 {
		a.Int(AttrTries, int64(in.Tries))
	}
	if in.Cached {
		a.Bool(AttrCached, true)
	}
	if x.outcome != "" {
		a.String(AttrOutcome, string(x.outcome))
	}
}

// writeRequest writes the request. What is not a JSON object becomes a text.
func writeRequest(a *attrs, in *Input) {
	request := in.BackendRequest
	if request == nil {
		request = in.Request
	}
	checked := in.Checked
	if checked == nil {
		request = openai.PairSurrogates(request)
		checked = openai.Check(request)
	}
	if checked == nil {
		if len(request) > 0 {
			a.String(AttrRequestText, string(request))
		}
		return
	}
	written := 0
	prefix := func() string {
		written++
		return promptPrefix(written - 1)
	}
	message := func(raw []byte) { a.message(prefix(), raw) }
	instructions, separate := in.Form.instructions()
	instruct := func() { // Python's clients send instructions behind the messages
		skip := checked.Skip(request)
		rawjson.WalkMembers(request, rawjson.SkipSpace(request, 0), func(m rawjson.Member) int {
			end := skip(m.ValueStart)
			if string(m.Name) == instructions {
				ChatMessages(in.Form, instructions, request[m.ValueStart:end:end], message)
			}
			return end
		})
		separate = false
	}
	skip := checked.Skip(request)
	// A long history is walked once: its messages are written where they are found.
	rawjson.WalkMembers(request, rawjson.SkipSpace(request, 0), func(m rawjson.Member) int {
		name := string(m.Name)
		if name == "messages" && in.Form != Messages && request[m.ValueStart] == '[' {
			return rawjson.WalkElements(request, m.ValueStart, func(start int) int { return a.messageAt(prefix(), request, start, skip) })
		}
		end := skip(m.ValueStart)
		value := request[m.ValueStart:end:end]
		isInstructions := name == instructions && instructions != ""
		if separate && (isInstructions || name == "messages" || name == "input") {
			instruct()
		}
		switch {
		case isInstructions:
		case ChatMessages(in.Form, name, value, message):
		case name == "tools":
			i := 0
			openai.Elements(value, func(tool []byte) {
				writeTool(a, agl.AttrGenAIRequest+".functions."+strconv.Itoa(i), tool)
				i++
			})
		default:
			a.value(agl.AttrGenAIRequest, m.Name, value)
		}
		return end
	})
}

// promptPrefix returns the prefix of the attributes of a message, counted from 0. Those of most conversations are made once.
func promptPrefix(message int) string {
	if made := promptPrefixes(); message < len(made) {
		return made[message]
	}
	return agl.AttrGenAIPrompt + "." + strconv.Itoa(message)
}

var promptPrefixes = sync.OnceValue(func() []string {
	made := make([]string, 512)
	for i := range made {
		made[i] = agl.AttrGenAIPrompt + "." + strconv.Itoa(i)
	}
	return made
})

// writeTool writes the members of a tool's function. In Chat Completions the function is a member
// of the tool; in Responses and Messages the tool is the function. One without parameters takes none, and readers rely on the attribute.
func writeTool(a *attrs, prefix string, tool []byte) {
	var named, takes bool
	var write func(name, value []byte)
	write = func(name, value []byte) {
		switch {
		case string(name) == "function" && value[0] == '{':
			openai.Members(value, write)
			return
		case string(name) == "input_schema":
			name = []byte("parameters")
		case string(name) == "type":
			return
		}
		named = named || string(name) == "name"
		takes = takes || string(name) == "parameters" && value[0] != 'n'
		a.value(prefix, name, value)
	}
	openai.Members(tool, write)
	if named && !takes {
		a.value(prefix, []byte("parameters"), []byte("{}"))
	}
}

func writeReply(a *attrs, x *parsedCall) {
	if x.replyText != nil {
		a.String(AttrReplyText, string(x.replyText))
		return
	}
	if x.responseID != "" {
		a.String(agl.AttrGenAIResponseID, x.responseID)
	}
	if len(x.model) > 0 && x.model[0] == '"' {
		a.Raw(agl.AttrGenAIResponseModel, x.model)
	}
	writeUsage(a, x)
	for i := range x.choices {
		choice := &x.choices[i]
		prefix := agl.AttrGenAICompletion + "." + strconv.Itoa(i)
		if choice.message != nil {
			a.message(prefix, choice.message)
		}
		for _, m := range choice.finish {
			a.value(prefix, m.Name, m.Value)
		}
		if i > 0 {
			continue
		}
		if choice.logprobs != nil {
			a.json(agl.AttrLogprobsContent, choice.logprobs)
		}
		if choice.refusal != nil {
			a.json(agl.AttrLogprobsRefusal, choice.refusal)
		}
		if choice.versions != nil {
			a.json(AttrVersionSpans, choice.versions)
		}
	}
}

// writeUsage writes the backend's token counts, or else the number of token ids.
func writeUsage(a *attrs, x *parsedCall) {
	usage, ok := openai.ParseUsage(x.usage)
	if !ok {
		if !x.tokens.given() {
			return
		}
		usage.Prompt = int64(x.tokens.Prompt.Len())
		usage.Completion = int64(x.tokens.replied())
	}
	a.Int(agl.AttrGenAIInputTokens, usage.Prompt)
	a.Int(agl.AttrGenAIPromptTokens, usage.Prompt)
	a.Int(agl.AttrGenAIOutputTokens, usage.Completion)
	a.Int(agl.AttrGenAICompletionTokens, usage.Completion)
	a.Int(agl.AttrGenAITotalTokens, usage.Sum())
}

// writeTokens writes the token ids, and where they differ from the previous call's.
func writeTokens(a *attrs, at *Position, x *parsedCall) {
	if !x.tokens.given() {
		return
	}
	a.Raw(agl.AttrPromptTokenIDs, x.tokens.Prompt)
	a.Raw(agl.AttrResponseTokenIDs, x.tokens.Replies[0])
	if at.Previous != nil {
		a.Int(AttrDriftIndex, int64(at.Previous.drift(x.tokens.Prompt)))
	}
}

// rawExchange writes the attributes of the span that holds the backend's reply: one for
// each member, lists and objects as Python literals.
func rawExchange(a *attrs, x *parsedCall) {
	if x.responseID != "" {
		a.String(rawPrefix+".id", x.responseID)
	}
	for _, m := range x.members {
		switch string(m.Name) {
		case "id", "prompt_token_ids", "response_token_ids":
		default:
			a.python(rawPrefix, m.Name, m.Value)
		}
	}
	if len(x.tokens.Prompt) > 0 {
		a.idsText(rawPrefix+".prompt_token_ids", func(dst []byte) []byte { return append(dst, x.tokens.Prompt...) })
	}
	if x.tokens.given() {
		a.idsText(rawPrefix+".response_token_ids", func(dst []byte) []byte {
			dst = append(dst, '[')
			for i, reply := range x.tokens.Replies {
				if i > 0 {
					dst = append(dst, ',')
				}
				if len(reply) == 0 {
					dst = append(dst, "[]"...)
				}
				dst = append(dst, reply...)
			}
			return append(dst, ']')
		})
	}
}
