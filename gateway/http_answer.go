package gateway

import (
	"errors"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/internal/rawjson"
)

func notFound(w http.ResponseWriter, r *http.Request) {
	if path, cut := strings.CutSuffix(r.URL.Path, "/"); cut && path != "" && !strings.HasSuffix(path, "/") {
		to := url.URL{Path: path, RawQuery: r.URL.RawQuery}
		w.Header()["Location"] = []string{to.String()}
		w.WriteHeader(http.StatusTemporaryRedirect)
		return
	}
	writeError(w, errStatus(http.StatusNotFound, "Not Found"))
}

func writeJSON(w http.ResponseWriter, status int, body []byte) {
	w.Header()["Content-Type"] = []string{"application/json"}
	w.WriteHeader(status)
	_, _ = w.Write(body) //nolint:gosec,nolintlint // it is JSON, and says so; the write fails only if the client has left
}

// statusError is an error with its HTTP status and body.
type statusError struct {
	status int
	body   []byte
	text   string
	header http.Header // of the answer; may be nil
}

func (e *statusError) Error() string { return e.text }

// errStatus returns an error with the body {"detail": text}.
func errStatus(status int, text string) *statusError {
	o := rawjson.NewObject(nil)
	o.String("detail", text)
	return &statusError{status: status, body: o.End(), text: text}
}

// after asks clients to repeat the request after a time.
func (e *statusError) after(wait time.Duration) *statusError {
	e.header = http.Header{}
	backoff.SetRetryAfter(e.header, wait)
	return e
}

func errorStatus(err error) int {
	if e, ok := errors.AsType[*statusError](err); ok {
		return e.status
	}
	switch agl.ErrorCode(err) {
	case agl.CodeInvalid:
		return http.StatusUnprocessableEntity
	case agl.CodeNotFound:
		return http.StatusNotFound
	case agl.CodeUnavailable, agl.CodeExhausted:
		return http.StatusServiceUnavailable
	default:
		return http.StatusInternalServerError
	}
}

func writeError(w http.ResponseWriter, err error) {
	if e, ok := errors.AsType[*access.ThrottledError](err); ok {
		err = errStatus(http.StatusTooManyRequests, e.Error()).after(e.Wait)
	}
	answer, ok := errors.AsType[*statusError](err)
	if !ok {
		if answer = errStatus(errorStatus(err), err.Error()); answer.status == http.StatusServiceUnavailable {
			answer = answer.after(time.Second)
		}
	}
	maps.Copy(w.Header(), answer.header)
	writeJSON(w, answer.status, answer.body)
}
