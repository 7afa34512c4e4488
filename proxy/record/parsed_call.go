package record

import (
	"strconv"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/modelerror"
	"github.com/agl-go/agl/proxy/openai"
)

// parsedCall holds what a record needs of a request and its reply, in the same form for
// all APIs. Its slices share the memory of the documents where possible.
type parsedCall struct {
	replied    bool            // the reply is a JSON object
	members    []openai.Member // of the reply
	choices    []choice
	replyText  []byte // a reply that is not a JSON object
	responseID string
	model      []byte // raw
	usage      []byte // raw
	failure    []byte // raw error
	message    string // of failure
	tokens     Tokens

	counted, given int64 // see Made

	fault, source string // of the input, or what is wrong with the reply
	outcome       agl.OutcomeKind
}

// read reads the reply of a call; what is not valid JSON is kept as text. previous
// holds the token ids of the previous call, or is nil.
func (b *Builder) read(in *Input, previous *Tokens) parsedCall {
	x := parsedCall{fault: in.Fault, source: in.Source, outcome: in.Outcome}
	reply := in.Reply
	if in.Streamed != nil {
		b.reply = in.Streamed.AppendJSON(b.reply[:0])
		reply = b.reply
		if n := in.Streamed.Malformed(); n > 0 {
			x.fail(strconv.Itoa(n) + " events of the stream could not be read")
		}
	}
	var known IDs
	if previous != nil {
		known = previous.Prompt
	}
	valid := openai.ValidObjectWith(reply, known)
	if !valid {
		reply = openai.PairSurrogates(reply)
		valid = openai.ValidObjectWith(reply, known)
	}
	switch {
	case len(reply) == 0:
		if in.Status > 0 {
			x.useless(in, "the reply is empty")
		}
	case valid:
		x.readReply(in, reply, previous)
	default:
		x.replyText = reply
		x.useless(in, "the reply is not a JSON object")
	}
	return x
}

// useless is fail for a reply that no agent can use: unless the proxy has only a part of it, what comes after it is the model's fault.
func (x *parsedCall) useless(in *Input, reason string) {
	if x.fault == "" && x.outcome == "" && !in.Cut {
		x.outcome = agl.OutcomeModelError
	}
	x.fail(reason)
}

// fail notes a fault of the backend, unless the call has already failed.
func (x *parsedCall) fail(reason string) {
	if x.fault == "" {
		x.fault, x.source = reason, SourceProvider
	}
}

func (x *parsedCall) readReply(in *Input, reply []byte, previous *Tokens) {
	x.replied = true
	var ids tokenSources
	switch in.Form {
	case Responses, Messages:
		openai.Members(reply, func(name, value []byte) {
			x.members = append(x.members, openai.Member{Name: name, Value: value})
		})
		x.readMembers(&ids)
		if in.Form == Responses {
			x.choices = responsesChoices(x.members)
		} else {
			x.choices = messagesChoices(x.members)
		}
		if len(x.choices) > 0 {
			ids.replies = append(ids.replies, ids.reply)
		}
	default:
		parts := openai.ParseReply(reply)
		x.members = parts.Members
		x.readMembers(&ids)
		x.choices = make([]choice, len(parts.Choices))
		for i := range parts.Choices {
			ids.replies = append(ids.replies, x.choices[i].read(parts.Choices[i].Members, parts.Choices[i].Logprobs, &ids))
		}
		if len(x.choices) > 0 && x.choices[0].versions == nil {
			x.choices[0].versions = ids.versions
		}
	}
	if !in.Cut {
		x.tokens = ids.read(previous)
		given := int64(x.tokens.replied())
		if counted, ok := openai.ParseUsage(x.usage); ok && given < counted.Completion {
			if given > 0 {
				x.counted, x.given = counted.Completion, given
			}
			x.tokens = Tokens{} // with gaps they are not what the model sampled
		}
	}
	if in.Status >= 200 && in.Status < 300 {
		x.checkReply(in)
	}
}

// badGateway is the HTTP status of which such a reply is a case.
const badGateway = 502

// checkReply notes a reply that is none in spite of its status: an error, or one of another API.
func (x *parsedCall) checkReply(in *Input) {
	switch {
	case x.message != "" && in.Streamed == nil: // the error of a stream is known already
		outcome := modelerror.Outcome(badGateway, object(pair{"error", x.failure}))
		if x.fault == "" && x.outcome == "" {
			x.outcome = outcome.Kind
		}
		x.fail("the backend answered " + strconv.Itoa(in.Status) + " with an error")
	case len(x.choices) == 0:
		x.useless(in, "the reply has neither output nor an error")
	}
}

// readMembers reads the members that all forms share.
func (x *parsedCall) readMembers(ids *tokenSources) {
	for _, m := range x.members {
		switch string(m.Name) {
		case "id":
			x.responseID = openai.Unquote(m.Value)
		case "model":
			x.model = m.Value
		case "usage":
			x.usage = m.Value
		case "prompt_token_ids":
			ids.prompt = m.Value
		case "token_ids":
			ids.reply = m.Value
		case "response_token_ids":
			ids.all = m.Value
		case "metadata":
			ids.versions = listOf(member(m.Value, "weight_versions"))
		case "error":
			x.failure, x.message = m.Value, openai.ErrorMessage(m.Value)
		}
	}
}
