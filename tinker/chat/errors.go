package chat

import (
	"fmt"
	"net/http"
)

// apiError is an error in OpenAI's form. Empty Param and Code are written as null.
type apiError struct {
	status  int
	Message string
	Type    string
	Param   string
	Code    string
}

type errorBody struct {
	Error errorDetail `json:"error"`
}

type errorDetail struct {
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

const (
	typeInvalid = "invalid_request_error"
	typeServer  = "server_error"

	// statusClientClosed is nginx's status for a client that left before the answer.
	statusClientClosed = 499
)

func badRequest(param, code, format string, args ...any) *apiError {
	return &apiError{status: http.StatusBadRequest, Message: fmt.Sprintf(format, args...), Type: typeInvalid, Param: param, Code: code}
}

func clientError(status int, code, message string) *apiError {
	return &apiError{status: status, Message: message, Type: typeInvalid, Code: code}
}

func serverError(status int, code, message string) *apiError {
	return &apiError{status: status, Message: message, Type: typeServer, Code: code}
}

func (s *Server) writeError(w http.ResponseWriter, e *apiError) {
	orNull := func(s string) *string {
		if s == "" {
			return nil
		}
		return &s
	}
	s.writeJSON(w, e.status, errorBody{Error: errorDetail{
		Message: e.Message, Type: e.Type, Param: orNull(e.Param), Code: orNull(e.Code),
	}})
}
