package gateway

import (
	"net/http"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/randomid"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/proxy/anthropic"
	"github.com/agl-go/agl/proxy/openai"
)

// translator turns one chat completion into the form of the agent's API.
type translator interface {
	Reply(dst, completion []byte) ([]byte, error)
	Event(dst, data []byte) ([]byte, error)
	End(dst []byte) ([]byte, error)
	Done() bool
}

// The paths of the agents' APIs. Calls of Responses and Messages reach backends as chat completions.
const (
	chatCompletions = "chat/completions"
	completions     = "completions"
	responses       = "responses"
	messages        = "messages"
)

// serves reports whether calls to a path below openai/v1 or anthropic/v1 are served.
func (g *Gateway) serves(api, path string) bool {
	switch path {
	case chatCompletions, completions:
		return api == openaiAPI
	case responses:
		return api == openaiAPI && g.cfg.Translate
	case messages:
		return api == anthropicAPI && g.cfg.Translate
	default:
		return false
	}
}

const (
	openaiAPI    = "openai"
	anthropicAPI = "anthropic"
)

// translate turns a request of Responses or Messages into a chat completion. For the other APIs it returns the body,
// and no translator.
func (g *Gateway) translate(path string, body jsontext.Value, start time.Time) (jsontext.Value, translator, error) {
	var chat jsontext.Value
	var to translator
	var err error
	switch path {
	case responses:
		o := openai.ResponsesOptions{Created: start.Unix(), ID: "resp_" + randomid.Hex(16)}
		chat, to, err = openai.ResponsesToChat(g.named(body), o)
	case messages:
		to = &anthropic.ChatReply{}
		chat, err = anthropic.ToChat(g.named(body), anthropic.ChatOptions{})
	default:
		return body, nil, nil
	}
	if err != nil {
		return nil, nil, errStatus(http.StatusBadRequest, err.Error())
	}
	return chat, to, nil
}

// named sets the model's name: an agent may name any model, or none.
func (g *Gateway) named(body jsontext.Value) jsontext.Value {
	return rawjson.Set(body, "model", rawjson.AppendString(nil, g.cfg.Model))
}
