package tracer

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/anthropic"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/record"
)

// accumulator joins the events of a stream.
type accumulator interface {
	Add(event []byte)
	Done() bool
	Malformed() int
	AppendJSON(dst []byte) []byte
}

func newAccumulator(form record.Form) accumulator {
	switch form {
	case record.Responses:
		return new(openai.ResponsesAccumulator)
	case record.Messages:
		return new(anthropic.Accumulator)
	case record.Chat, record.Completion:
	}
	return new(openai.Accumulator)
}

// unstreamed returns the reply that the events of a streamed one add up to. With an error it returns what could be
// read.
func unstreamed(form record.Form, body []byte) (jsontext.Value, error) {
	var (
		events openai.Events
		reply  = newAccumulator(form)
		err    error
	)
	events.Write(body)
	for last := false; err == nil && !last && !reply.Done(); {
		event := events.Next()
		if last = event == nil; last {
			event = events.Rest()
		}
		chunk := jsontext.Value(openai.Data(event))
		kind, _ := rawjson.Get(chunk, "type")
		switch failure, _ := rawjson.Get(chunk, "error"); {
		case openai.Failed(failure):
			err = fmt.Errorf("the model broke off: %s", failure)
		case string(kind) == `"error"`: // of Responses
			err = fmt.Errorf("the model broke off: %s", chunk)
		default:
			if reply.Add(chunk); reply.Malformed() > 0 {
				err = errors.New("an event of the model's reply is not a JSON object")
			}
		}
	}
	return reply.AppendJSON(nil), err
}
