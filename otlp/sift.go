package otlp

import (
	"fmt"
	"slices"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/agl-go/agl/internal/rawjson"
)

// jsonRequest is a request in JSON whose spans are not decoded.
type jsonRequest struct {
	Resources []jsonResource `json:"resourceSpans"`
}

type jsonResource struct {
	Scopes []jsonScope    `json:"scopeSpans"`
	Rest   jsontext.Value `json:",embed"`
}

type jsonScope struct {
	Spans []jsontext.Value `json:"spans"`
	Rest  jsontext.Value   `json:",embed"`
}

// siftJSON removes the spans of a request that the decoder refuses, such as those with ids of another size, and calls
// reject for each.
func siftJSON(data []byte, reject func(reason string)) ([]byte, error) {
	var request jsonRequest
	if err := rawjson.Unmarshal(data, &request); err != nil {
		return nil, err
	}
	refused := func(span jsontext.Value) bool {
		alone := fmt.Appendf(nil, `{"resourceSpans":[{"scopeSpans":[{"spans":[%s]}]}]}`, span)
		_, err := new(ptrace.JSONUnmarshaler).UnmarshalTraces(alone)
		if err != nil {
			name, _ := rawjson.Get(span, "name")
			reject(fmt.Sprintf("span %.100s cannot be decoded: %.200v", name, err))
		}
		return err != nil
	}
	for i := range request.Resources {
		scopes := request.Resources[i].Scopes
		for j := range scopes {
			scopes[j].Spans = slices.DeleteFunc(scopes[j].Spans, refused)
		}
	}
	return json.Marshal(request, rawjson.Options())
}
