package proxy

import (
	"net/http"
	"strconv"

	"github.com/agl-go/agl/proxy/openai"
)

// HeaderSource tells on an error whose it is: "gateway" when the proxy made it,
// "provider" when it came from the backend.
const HeaderSource = "Agl-Error-Source"

// HeaderTries tells on a reply how often the request was sent to a backend.
const HeaderTries = "Agl-Tries"

// HeaderOutcome tells on a reply that ends the attempt what its outcome is: the
// "budget" of a call over the budget.
const HeaderOutcome = "Agl-Outcome"

// HeaderCache says "hit" on a reply from the cache.
const HeaderCache = "Agl-Cache"

// The values of HeaderSource.
const (
	SourceGateway  = "gateway"
	SourceProvider = "provider"
)

// failure is an error that the proxy itself answers with.
type failure struct {
	status     int
	body       openai.Error
	retryAfter int // seconds; 0 gives no header
}

func (f *failure) Error() string { return f.body.Message }

func fail(status int, kind, code, message string) *failure {
	return &failure{status: status, body: openai.Error{Message: message, Type: kind, Code: code}}
}

// write answers with the failure.
func (f *failure) write(w http.ResponseWriter) error {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set(HeaderSource, SourceGateway)
	if f.retryAfter > 0 {
		h.Set("Retry-After", strconv.Itoa(f.retryAfter))
	}
	body := f.body.AppendJSON(nil)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(f.status)
	_, err := w.Write(body) //nolint:gosec // JSON, by its Content-Type; no browser renders it
	return err
}
