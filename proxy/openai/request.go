package openai

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/go-json-experiment/json/jsontext"
)

// ErrNotObject is the error for a body that is not a JSON object.
var ErrNotObject = errors.New("the body must be a JSON object")

// ErrTwoModels is the error for a body with two models: the backend would decide which one
// answers.
var ErrTwoModels = errors.New(`"model" is given twice`)

// ErrNoModel is the error for a body without a model.
var ErrNoModel = errors.New(`"model" must be a string`)

// MaxParts is how many parts the body of a request may have: objects, lists, and the texts and nulls in lists. What is in a
// text does not count, such as the arguments of calls. Translated or recorded, a part of two bytes takes up to a kilobyte.
const MaxParts = 100_000

// ErrTooMany is the error for a body with more than that.
var ErrTooMany = fmt.Errorf("the body has more than %d parts: objects, lists, and texts and nulls in lists", MaxParts)

// Request holds the parts of a request body that a proxy needs.
type Request struct {
	Model  string
	Stream bool
	// Hide says what the agent did not ask for and must not see.
	Hide Hide
	// Prompts is the number of prompts of a completion; other requests have one.
	Prompts int
	// Checked is nil if the body is not valid JSON.
	Checked *Checked

	open                                     int // after the opening brace
	model, stream, logprobs, tokenIDs, usage span
	options                                  span // stream_options, if an object
	salt                                     span // cache_salt
	salted                                   bool // it is not null
}

type span struct{ start, end int }

func (s span) given() bool { return s.end > 0 }

// ParseRequest reads a request body. Of repeated members the last one counts, as it
// does for the backends; a model must not be repeated, also not in another spelling or case.
// A body that is not valid JSON is read, too, if its members can be told apart: the backend decides.
func ParseRequest(body []byte) (Request, error) {
	r := Request{Hide: Hide{TokenIDs: true, Logprobs: true}, Prompts: 1}
	models, modelGiven, usage := 0, false, false
	complete, parts, checked := eachChecked(body, func(m rawjson.Member) {
		at := span{m.ValueStart, m.End}
		name := m.Name
		if bytes.IndexByte(name, '\\') >= 0 {
			name = []byte(Unquote([]byte(`"` + string(name) + `"`)))
		}
		switch string(name) {
		case "model":
			models++
			unquoted, err := jsontext.AppendUnquote(nil, m.Value)
			modelGiven = err == nil
			r.Model, r.model = string(unquoted), at
		case "stream":
			r.stream = at
			r.Stream = string(m.Value) == "true"
		case "stream_options":
			usage = r.parseOptions(m)
		case "prompt":
			r.Prompts = countPrompts(m.Value)
		case "logprobs":
			r.logprobs = at
			r.Hide.Logprobs = rawjson.IsNull(m.Value) || string(m.Value) == "false"
		case "cache_salt":
			r.salt, r.salted = at, !rawjson.IsNull(m.Value)
		case "return_token_ids":
			r.tokenIDs = at
			r.Hide.TokenIDs = string(m.Value) != "true"
		default:
			if bytes.EqualFold(name, []byte("model")) { // servers in Go take MODEL for model
				models++
			}
		}
	})
	if !complete {
		return Request{}, ErrNotObject
	}
	if parts > MaxParts {
		return Request{}, ErrTooMany
	}
	if models > 1 {
		return Request{}, ErrTwoModels
	}
	if !modelGiven {
		return Request{}, ErrNoModel
	}
	r.Hide.Usage = r.Stream && !usage
	r.Checked = checked
	r.open = rawjson.SkipSpace(body, 0) + 1
	return r, nil
}

// parseOptions reads stream_options and reports whether usage is requested.
func (r *Request) parseOptions(m rawjson.Member) (usage bool) {
	r.options, r.usage = span{m.ValueStart, m.End}, span{}
	rawjson.EachMember(m.Value, func(o rawjson.Member) {
		if string(o.Name) == "include_usage" {
			r.usage = span{m.ValueStart + o.ValueStart, m.ValueStart + o.End}
			usage = string(o.Value) == "true"
		}
	})
	return usage
}

// countPrompts returns the number of prompts of a completion. A string or a list of token
// ids is one prompt; a list of these has as many prompts as elements.
func countPrompts(raw []byte) int {
	if raw[0] != '[' {
		return 1
	}
	n, one := 0, false
	rawjson.EachElement(raw, func(value []byte) {
		n++
		one = one || value[0] != '"' && value[0] != '['
	})
	if one {
		return 1
	}
	return n
}

// Ask says what a proxy asks a backend for, in addition to the agent's request.
type Ask struct {
	TokenIDs   bool // token ids and log-probabilities of all choices
	Usage      bool // usage at the end of a stream
	Unstreamed bool // the whole reply, although the agent wants a stream
	// Salt, if not empty, is the cache_salt of a request that has none.
	Salt string
	// Completion marks a request for a completion, in which logprobs is a number.
	Completion bool
}

// Body returns the body of the request to the backend: the body from which r was parsed, with
// another model name and with the members for ask. All other bytes are unchanged. The result is in
// parts, which share the memory of body, because a request with a long history is not copied.
func (r *Request) Body(body []byte, model string, ask Ask) [][]byte {
	edits := make([]edit, 0, 8)
	var insert []byte // before the first member
	want := func(at span, hidden bool, member, value string) {
		switch {
		case !at.given():
			insert = append(append(append(insert, member...), value...), ',')
		case hidden:
			edits = append(edits, edit{at.start, at.end, []byte(value)})
		}
	}
	if ask.TokenIDs {
		logprobs := "true"
		if ask.Completion {
			logprobs = "1"
		}
		want(r.tokenIDs, r.Hide.TokenIDs, `"return_token_ids":`, "true")
		want(r.logprobs, r.Hide.Logprobs, `"logprobs":`, logprobs)
	}
	if ask.Salt != "" {
		want(r.salt, !r.salted, `"cache_salt":`, string(rawjson.AppendString(nil, ask.Salt)))
	}
	switch {
	case ask.Unstreamed && r.Stream:
		edits = append(edits, edit{r.stream.start, r.stream.end, []byte("false")})
		if r.options.given() {
			// Servers refuse stream_options for a request that does not stream.
			edits = append(edits, edit{r.options.start, r.options.end, null})
		}
	case ask.Usage && r.Hide.Usage:
		edits, insert = r.askUsage(body, edits, insert)
	}
	if insert != nil {
		edits = append(edits, edit{r.open, r.open, insert})
	}
	if model != r.Model {
		edits = append(edits, edit{r.model.start, r.model.end, rawjson.AppendString(nil, model)})
	}
	sortEdits(edits)
	return edited(body, edits)
}

func (r *Request) askUsage(body []byte, edits []edit, insert []byte) (_ []edit, _ []byte) {
	const options = `{"include_usage":true}`
	switch {
	case r.usage.given():
		edits = append(edits, edit{r.usage.start, r.usage.end, []byte("true")})
	case !r.options.given():
		insert = append(insert, `"stream_options":`+options+`,`...)
	case body[r.options.start] == '{' && body[rawjson.SkipSpace(body, r.options.start+1)] == '"':
		at := r.options.start + 1
		edits = append(edits, edit{at, at, []byte(`"include_usage":true,`)})
	default:
		edits = append(edits, edit{r.options.start, r.options.end, []byte(options)})
	}
	return edits, insert
}
