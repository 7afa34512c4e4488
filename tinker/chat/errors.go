package chat

import (
	"fmt"
	"net/http"
)

// apiError is an error in the form of OpenAI's API.
type apiError struct {
	status  int
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

type errorBody struct {
	Error *apiError `json:"error"`
}

const (
	typeInvalid = "invalid_request_error"
	typeServer  = "server_error"

	// statusClientClosed is nginx's status for a client that left before the answer.
	statusClientClosed = 499
)

// newError makes an error; an empty param or code is null.
func newError(status int, kind, param, code, format string, args ...any) *apiError {
	e := &apiError{status: status, Message: fmt.Sprintf(format, args...), Type: kind}
	if param != "" {
		e.Param = &param
	}
	if code != "" {
		e.Code = &code
	}
	return e
}

func badRequest(param, code, format string, args ...any) *apiError {
	return newError(http.StatusBadRequest, typeInvalid, param, code, format, args...)
}
