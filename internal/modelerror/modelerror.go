// Package modelerror tells what an error reply of a model's API means for the agent that received it.
//
// The package knows the error bodies of OpenAI's API and of the servers that imitate it. It must not know who made the call.
package modelerror

import (
	"net/http"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// maxMessage bounds the bytes of a body that replace a missing message.
const maxMessage = 500

// Outcome returns the outcome of an agent that fails after a reply of this status and body: OutcomeContextOverflow,
// OutcomeBudget or OutcomeModelError, with the reply's message. The kind is empty if the reply is not an error, or if the
// model rejected the call as malformed, which is the agent's own failure.
func Outcome(status int, body []byte) agl.Outcome {
	if status < http.StatusBadRequest {
		return agl.Outcome{}
	}
	var doc struct {
		Error apiError `json:"error"`
	}
	// The shape of errors varies between servers. One that does not fit is text.
	if rawjson.Unmarshal(body, &doc) != nil || doc.Error.Message == "" {
		doc.Error.Message = string(body[:min(len(body), maxMessage)])
	}
	o := agl.Outcome{Message: doc.Error.Message}
	switch {
	case doc.Error.overflow():
		o.Kind = agl.OutcomeContextOverflow
	case doc.Error.Code == "budget_exceeded": // the proxy's answer when an attempt's budget is spent
		o.Kind = agl.OutcomeBudget
	case status >= http.StatusInternalServerError || unrelated(status):
		o.Kind = agl.OutcomeModelError
	}
	return o
}

// unrelated reports whether a 4xx says nothing about the request's content.
func unrelated(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusRequestTimeout, http.StatusConflict, http.StatusTooEarly, http.StatusTooManyRequests:
		return true
	}
	return false
}

// apiError is the error object of OpenAI's API.
type apiError struct {
	Message string `json:"message"`
	Code    any    `json:"code"` // a string; a number in some servers
}

// overflow reports whether the prompt was too long. Not every server uses the code for it.
func (e apiError) overflow() bool {
	if e.Code == "context_length_exceeded" {
		return true
	}
	message := strings.ToLower(e.Message)
	return strings.Contains(message, "maximum context length") || strings.Contains(message, "context length exceeded") ||
		strings.Contains(message, "context window")
}
