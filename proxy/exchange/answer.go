package exchange

import (
	"net/http"
	"strconv"

	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/record"
)

// The headers that the proxy adds to replies.
const (
	// HeaderSource is the source of an error: "gateway" for one of the proxy's own,
	// "provider" for one from the backend.
	HeaderSource = "Agl-Error-Source"
	// HeaderTries is how often the request was sent to a backend.
	HeaderTries = "Agl-Tries"
	// HeaderOutcome is the outcome of the attempt, on a reply that ends it: "budget"
	// for a call over the budget.
	HeaderOutcome = "Agl-Outcome"
)

// WriteError answers with an error of the proxy itself.
func WriteError(w http.ResponseWriter, e *openai.Error) error {
	h := w.Header()
	h.Set(HeaderSource, record.SourceGateway)
	if e.RetryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(e.RetryAfter))
	}
	return WriteJSON(w, e.Status, e.AppendJSON(nil))
}

// WriteJSON answers with a JSON body.
func WriteJSON(w http.ResponseWriter, status int, body []byte) error {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, err := w.Write(body) //nolint:gosec // JSON, by its Content-Type; no browser renders it
	return err
}
