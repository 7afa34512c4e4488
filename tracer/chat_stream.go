package tracer

import (
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/openai"
)

// unstreamed returns the chat completion that the server-sent events of a streamed
// one add up to. Beside an error it returns what could be read.
func unstreamed(body []byte) (jsontext.Value, error) {
	var (
		events openai.Events
		reply  openai.Accumulator
		err    error
	)
	events.Write(body)
	for last := false; err == nil && !last && !reply.Done(); {
		event := events.Next()
		if last = event == nil; last {
			event = events.Rest()
		}
		chunk := jsontext.Value(openai.Data(event))
		switch failure, _ := rawjson.Get(chunk, "error"); {
		case failure != nil && failure.Kind() != 'n':
			err = fmt.Errorf("the model broke off: %s", failure)
		default:
			if reply.Add(chunk); reply.Malformed() > 0 {
				err = errors.New("an event of the model's reply is not a JSON object")
			}
		}
	}
	return reply.AppendJSON(nil), err
}
