package wire

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// StatusOf maps the code of a store's error to an HTTP status, and to the name under which Python clients know such
// an error.
func StatusOf(code agl.Code) (status int, errorType string) {
	switch code {
	case agl.CodeInvalid, agl.CodeNotFound, agl.CodeIllegalState:
		return http.StatusBadRequest, "ValueError"
	case agl.CodeEvicted:
		return http.StatusBadRequest, "RuntimeError"
	case agl.CodeConflict:
		return http.StatusUnprocessableEntity, "ValueError"
	case agl.CodeExhausted:
		return http.StatusInsufficientStorage, "MemoryError"
	case agl.CodeUnavailable:
		return http.StatusServiceUnavailable, "ConnectionError"
	case agl.CodeUnauthorized:
		return http.StatusUnauthorized, "PermissionError"
	case agl.CodeUnimplemented:
		return http.StatusNotImplemented, "NotImplementedError"
	case agl.CodeInternal:
	}
	return http.StatusInternalServerError, "InternalError"
}

// AppendError appends the document of a store's error: the reference's keys, and the code, from which [DecodeError]
// restores the error.
func AppendError(dst []byte, err error) []byte {
	code := agl.ErrorCode(err)
	_, errorType := StatusOf(code)
	o := rawjson.NewObject(dst)
	o.String("detail", err.Error())
	o.String("error_type", errorType)
	o.String("code", string(code))
	return o.End()
}

// ErrBudget rejects a request for which its key's budget has no room. The code tells clients not to retry.
func ErrBudget(err error) *StatusError {
	return &StatusError{Status: http.StatusTooManyRequests, Body: AppendError(nil, agl.Errorf(agl.CodeExhausted, "%w", err))}
}

// AppendFault appends the document of an internal error. It contains only the id under which the log has the details.
func AppendFault(dst []byte, requestID string) []byte {
	o := rawjson.NewObject(dst)
	o.String("detail", "Internal server error")
	o.String("error_type", "InternalError")
	o.String("code", string(agl.CodeInternal))
	o.String("request_id", requestID)
	return o.End()
}

// longestExcerpt bounds the part of an answer that an error quotes, in bytes.
const longestExcerpt = 500

// DecodeError returns the error that an answer represents: the store's own error, if it is one.
func DecodeError(op string, status int, body []byte) error {
	var doc struct {
		Detail jsontext.Value `json:"detail"`
		Code   agl.Code       `json:"code"`
		Type   string         `json:"error_type"`
		ID     string         `json:"request_id"`
		Reason agl.Code       `json:"reason"` // of Ready
	}
	var message string
	if rawjson.Unmarshal(body, &doc) == nil {
		switch doc.Detail.Kind() {
		case '"':
			message = rawjson.Unquote(doc.Detail)
		case '[':
			message = describeInvalid(doc.Detail)
		}
	}
	code := doc.Code
	switch {
	case code != "":
	case doc.Reason == agl.CodeExhausted:
		code = doc.Reason
	default:
		code = codeOf(status, doc.Type)
	}
	if doc.Code == "" && code == agl.CodeUnimplemented && message == http.StatusText(status) {
		message = "it does not have this request; it may be older than this program, Agent-lightning's own, or not a store"
	} else if message != "" && status < http.StatusInternalServerError {
		return agl.Errorf(code, "%s", message)
	}
	if message == "" {
		message = visible(body)
		if doc.Detail == nil && code == agl.CodeUnimplemented {
			message = strings.TrimSuffix("this is not the answer of a store, check its address: "+message, ": ")
		}
	}
	if len(message) > longestExcerpt {
		message = strings.ToValidUTF8(message[:longestExcerpt], "") + "…"
	}
	if doc.ID != "" {
		message += " (its log has more under request_id " + doc.ID + ")"
	}
	return agl.Errorf(code, "%s: the store's server answered %d %s: %s", op, status, http.StatusText(status), message)
}

// IsError reports whether an answer is the error document of a store, rather than of something in between.
func IsError(body []byte) bool {
	var doc struct {
		Detail jsontext.Value `json:"detail"`
	}
	return rawjson.Unmarshal(body, &doc) == nil && doc.Detail != nil
}

// unseen is what a browser does not show of the page with which a proxy in between answers.
var unseen = regexp.MustCompile(`(?is)<(title|style|script)\b.*?</(title|style|script)>|<[^<>]*>`)

// visible returns the text of an answer that is no document of a store, in one line: of a page, what a browser shows.
func visible(body []byte) string {
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("<")) {
		body = unseen.ReplaceAll(body, []byte(" "))
	}
	return strings.Join(strings.Fields(string(body)), " ")
}

// codeOf returns the code for an answer without one, such as that of a Python server, or of a proxy in between.
func codeOf(status int, errorType string) agl.Code {
	switch {
	case errorType == "RuntimeError":
		return agl.CodeEvicted
	case status == http.StatusUnauthorized || status == http.StatusForbidden:
		return agl.CodeUnauthorized
	case status == http.StatusNotFound || status == http.StatusMethodNotAllowed || status == http.StatusNotImplemented:
		return agl.CodeUnimplemented
	case status == http.StatusInsufficientStorage:
		return agl.CodeExhausted
	case Retryable(status):
		return agl.CodeUnavailable
	case status >= http.StatusInternalServerError:
		return agl.CodeInternal
	default:
		return agl.CodeInvalid
	}
}

// Retryable reports whether the same request may succeed a moment later.
func Retryable(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return false
}

// describeInvalid describes the list of a 422 answer in words.
func describeInvalid(detail jsontext.Value) string {
	var entries []struct {
		Loc   []any          `json:"loc"`
		Msg   string         `json:"msg"`
		Type  string         `json:"type"`
		Input jsontext.Value `json:"input"`
	}
	if rawjson.Unmarshal(detail, &entries) != nil {
		return string(detail)
	}
	var b strings.Builder
	for i, e := range entries {
		if i > 0 {
			b.WriteString("; ")
		}
		if e.Type == "idempotency_conflict" {
			b.WriteString(e.Msg)
			continue
		}
		for j, at := range e.Loc {
			if j > 0 {
				b.WriteByte('.')
			}
			fmt.Fprint(&b, at)
		}
		fmt.Fprintf(&b, ": %s", e.Msg)
		if e.Type != "missing" && len(e.Input) <= 200 {
			fmt.Fprintf(&b, ", got %s", e.Input)
		}
	}
	return b.String()
}
