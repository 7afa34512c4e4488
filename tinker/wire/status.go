package wire

import (
	"net/http"

	"github.com/agl-go/agl"
)

// errorStatuses pairs HTTP statuses with codes. A server answers a code with the status of its first row. A client reads a
// status as the code of its first row.
func errorStatuses() []errorStatus {
	return []errorStatus{
		{http.StatusBadRequest, agl.CodeInvalid},
		{http.StatusUnauthorized, agl.CodeUnauthorized},
		{http.StatusForbidden, agl.CodeUnauthorized},
		{http.StatusNotFound, agl.CodeNotFound},
		{http.StatusMethodNotAllowed, agl.CodeUnimplemented},
		{http.StatusNotImplemented, agl.CodeUnimplemented},
		{http.StatusConflict, agl.CodeConflict},
		{http.StatusConflict, agl.CodeIllegalState},
		{http.StatusGone, agl.CodeEvicted},
		{http.StatusTooManyRequests, agl.CodeExhausted},
		// The server is reachable, but fails at this request; some servers do so permanently.
		{http.StatusInternalServerError, agl.CodeInternal},
		{http.StatusServiceUnavailable, agl.CodeUnavailable},
		{http.StatusRequestTimeout, agl.CodeUnavailable},
		{http.StatusTooEarly, agl.CodeUnavailable},
	}
}

type errorStatus struct {
	status int
	code   agl.Code
}

// Status is the HTTP status of an error's code.
func Status(code agl.Code) int {
	for _, e := range errorStatuses() {
		if e.code == code {
			return e.status
		}
	}
	return http.StatusInternalServerError
}

// Code is the code of an error that a server reports with a status and, if it is one of this project's, a code.
func Code(status int, said string) agl.Code {
	for _, e := range errorStatuses() {
		if said == string(e.code) {
			return e.code
		}
	}
	for _, e := range errorStatuses() {
		if e.status == status {
			return e.code
		}
	}
	switch {
	case status >= http.StatusInternalServerError:
		return agl.CodeUnavailable
	case status >= http.StatusBadRequest:
		return agl.CodeInvalid
	}
	return agl.CodeInternal
}
