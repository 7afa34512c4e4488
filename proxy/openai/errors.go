package openai

import "github.com/go-json-experiment/json/jsontext"

// The types of error that clients tell apart.
const (
	InvalidRequestError = "invalid_request_error"
	AuthenticationError = "authentication_error"
	OverloadedError     = "overloaded_error"
	RateLimitError      = "rate_limit_error"
	APIError            = "api_error"
)

// Error is an error body.
type Error struct {
	Message string
	Type    string
	Param   string // the field at fault; empty is null
	Code    string // for programs; empty is null
}

// AppendJSON appends the body. Besides the error object that OpenAI's clients
// read it says "type":"error", which is what Anthropic's look for.
func (e Error) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"type":"error","error":{"message":`...)
	dst = appendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = appendString(dst, e.Type)
	dst = append(dst, `,"param":`...)
	dst = appendNullable(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendNullable(dst, e.Code)
	return append(dst, "}}"...)
}

func appendString(dst []byte, s string) []byte {
	// A byte that is not UTF-8 becomes U+FFFD; the error only reports that.
	dst, _ = jsontext.AppendQuote(dst, s)
	return dst
}

func appendNullable(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return appendString(dst, s)
}
