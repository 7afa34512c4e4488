package openai

import (
	"errors"

	"github.com/go-json-experiment/json/jsontext"
)

// ErrNotObject says that a body is not one JSON object.
var ErrNotObject = errors.New("the body must be a JSON object")

// ErrNoModel says that a body does not name a model.
var ErrNoModel = errors.New(`"model" must be a string`)

// Request is what a proxy must know of a request body.
type Request struct {
	Model  string
	Stream bool
	// Hide says what the agent did not ask for, and so must not see.
	Hide Hide

	open                      int // behind the opening brace
	model, logprobs, tokenIDs span
}

type span struct{ start, end int }

func (s span) given() bool { return s.end > 0 }

// ParseRequest reads a request body. Where a member is repeated the last one
// counts, as it does for the servers behind.
func ParseRequest(body []byte) (Request, error) {
	r := Request{Hide: Hide{TokenIDs: true, Logprobs: true}}
	modelGiven := false
	complete := eachMember(body, func(m member) {
		at := span{m.valueStart, m.end}
		switch string(m.name) {
		case "model":
			unquoted, err := jsontext.AppendUnquote(nil, m.value)
			modelGiven = err == nil
			r.Model, r.model = string(unquoted), at
		case "stream":
			r.Stream = string(m.value) == "true"
		case "logprobs":
			r.logprobs = at
			r.Hide.Logprobs = isNull(m.value) || string(m.value) == "false"
		case "return_token_ids":
			r.tokenIDs = at
			r.Hide.TokenIDs = string(m.value) != "true"
		}
	})
	if !complete {
		return Request{}, ErrNotObject
	}
	if !modelGiven {
		return Request{}, ErrNoModel
	}
	r.open = skipSpace(body, 0) + 1
	return r, nil
}

// AppendBody appends the body that r was parsed from, as the backend is to get
// it: with model as the model's name and, if ask is set, with token ids and
// log-probabilities asked for. All other bytes stay as they are.
func (r *Request) AppendBody(dst, body []byte, model string, ask bool) []byte {
	edits := make([]edit, 0, 4)
	if ask && (!r.tokenIDs.given() || !r.logprobs.given()) {
		var insert []byte
		if !r.tokenIDs.given() {
			insert = append(insert, `"return_token_ids":true,`...)
		}
		if !r.logprobs.given() {
			insert = append(insert, `"logprobs":true,`...)
		}
		edits = append(edits, edit{r.open, r.open, insert})
	}
	if model != r.Model {
		// A byte that is not UTF-8 becomes U+FFFD; the error only reports that.
		quoted, _ := jsontext.AppendQuote(nil, model)
		edits = append(edits, edit{r.model.start, r.model.end, quoted})
	}
	if ask && r.Hide.TokenIDs && r.tokenIDs.given() {
		edits = append(edits, edit{r.tokenIDs.start, r.tokenIDs.end, []byte("true")})
	}
	if ask && r.Hide.Logprobs && r.logprobs.given() {
		edits = append(edits, edit{r.logprobs.start, r.logprobs.end, []byte("true")})
	}
	return appendEdited(dst, body, edits)
}
