package openai

import (
	"cmp"
	"math"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl/internal/rawjson"
)

// The types of errors that clients distinguish.
const (
	InvalidRequestError = "invalid_request_error"
	AuthenticationError = "authentication_error"
	PermissionError     = "permission_error"
	NotFoundError       = "not_found_error"
	OverloadedError     = "overloaded_error"
	RateLimitError      = "rate_limit_error"
	APIError            = "api_error"
)

// Error is an error of an API: the HTTP status of the answer and the content of its body.
type Error struct {
	Status     int // HTTP status; 0 for an error within a stream
	Message    string
	Type       string
	Param      string // the field at fault; empty is null
	Code       string // for programs; empty is null
	RetryAfter int    // seconds; 0 is left out
}

// NewError returns an error that names no field.
func NewError(status int, kind, code, message string) *Error {
	return &Error{Status: status, Type: kind, Code: code, Message: message}
}

// After asks clients to repeat the call after a time, of at least a second.
func (e *Error) After(wait time.Duration) *Error {
	e.RetryAfter = max(1, int(math.Ceil(wait.Seconds())))
	return e
}

func (e Error) Error() string { return e.Message }

// AppendJSON appends the body. Besides the error object that OpenAI's clients read it
// has "type":"error", which Anthropic's clients look for.
func (e Error) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"type":"error","error":{"message":`...)
	dst = rawjson.AppendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = rawjson.AppendString(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = appendNullable(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendNullable(dst, e.Code)
	return append(dst, "}}"...)
}

func appendNullable(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return rawjson.AppendString(dst, s)
}

// errorType returns a type that Anthropic's clients know; OpenAI's accept any.
func errorType(status int, said string) string {
	switch status {
	case http.StatusBadRequest, http.StatusUnprocessableEntity:
		return InvalidRequestError
	case http.StatusUnauthorized:
		return AuthenticationError
	case http.StatusForbidden:
		return PermissionError
	case http.StatusNotFound:
		return NotFoundError
	case http.StatusRequestEntityTooLarge:
		return "request_too_large"
	case http.StatusTooManyRequests:
		return RateLimitError
	case http.StatusServiceUnavailable, 529:
		return OverloadedError
	}
	switch said {
	case InvalidRequestError, AuthenticationError, OverloadedError, PermissionError, RateLimitError, NotFoundError, "request_too_large", "timeout_error":
		return said
	}
	return APIError
}

// ErrorFrom reads the error of a backend of either family, so that it can be sent to
// clients of the other one. A status of 0 is an error within a stream. If the body is not
// a JSON object, its text becomes the message.
func ErrorFrom(status int, body []byte) Error {
	e, said := Error{}, ""
	var read func(name, value []byte)
	read = func(name, value []byte) {
		s := rawjson.Unquote(value)
		switch string(name) {
		case "error":
			if s != "" {
				e.Message = s
			} else {
				Members(value, read)
			}
		case "message":
			e.Message = s
		case "detail": // FastAPI's
			e.Message = cmp.Or(e.Message, s)
		case "type":
			said = s
		case "param":
			e.Param = s
		case "code":
			e.Code = s
		}
	}
	if !Members(body, read) || e.Message == "" {
		e.Message = strings.TrimSpace(string(body))
	}
	if e.Message == "" {
		e.Message = http.StatusText(status)
	}
	e.Type = errorType(status, said)
	return e
}

// ErrorMessage returns the text of a reply's member error: a string, or the message
// of an object.
func ErrorMessage(raw []byte) string {
	if message, ok := rawjson.Get(raw, "message"); ok {
		raw = message
	}
	return rawjson.Unquote(raw)
}
