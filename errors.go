package agl

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// Code classifies an [Error]. It decides the HTTP status and whether repeating
// the call can help.
type Code string

// The codes. [Transient] tells which are worth a retry of the same call.
const (
	CodeInvalid       Code = "invalid"       // a value that is never right, whatever the state
	CodeNotFound      Code = "not_found"     // an id that names nothing
	CodeIllegalState  Code = "illegal_state" // right in itself, not in the present state
	CodeConflict      Code = "conflict"      // a name or an idempotency key that is taken by something else
	CodeEvicted       Code = "evicted"       // it was there and had to make room
	CodeExhausted     Code = "exhausted"     // no room left, and nothing may be evicted
	CodeUnavailable   Code = "unavailable"   // a dependency is away or shutting down
	CodeUnauthorized  Code = "unauthorized"  // no token, or a wrong one
	CodeUnimplemented Code = "unimplemented" // this implementation lacks the operation
	CodeInternal      Code = "internal"      // a fault of ours
)

// Error is the one error type of the domain. Two errors match by errors.Is when
// the target is an *Error without a message and of the same code, as the Err
// variables are.
type Error struct {
	Code    Code
	Message string
	Err     error // the cause, if any
}

// The errors to test for with errors.Is.
var (
	ErrInvalid       error = &Error{Code: CodeInvalid}
	ErrNotFound      error = &Error{Code: CodeNotFound}
	ErrIllegalState  error = &Error{Code: CodeIllegalState}
	ErrConflict      error = &Error{Code: CodeConflict}
	ErrEvicted       error = &Error{Code: CodeEvicted}
	ErrExhausted     error = &Error{Code: CodeExhausted}
	ErrUnavailable   error = &Error{Code: CodeUnavailable}
	ErrUnauthorized  error = &Error{Code: CodeUnauthorized}
	ErrUnimplemented error = &Error{Code: CodeUnimplemented}
)

// Errorf makes an *Error. A %w verb sets its cause.
func Errorf(code Code, format string, args ...any) error {
	err := fmt.Errorf(format, args...)
	return &Error{Code: code, Message: err.Error(), Err: errors.Unwrap(err)}
}

func (e *Error) Error() string {
	if e.Message == "" {
		return string(e.Code)
	}
	return e.Message
}

func (e *Error) Unwrap() error { return e.Err }

// Is makes an *Error match the Err variable of its code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Err == nil && t.Code == e.Code
}

// ErrorCode returns the code of the first *Error in err's chain. A [FieldError]
// counts as CodeInvalid; anything else, a context's error included, as
// CodeInternal; nil gives "".
func ErrorCode(err error) Code {
	if err == nil {
		return ""
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Code
	}
	if _, ok := errors.AsType[*FieldError](err); ok {
		return CodeInvalid
	}
	return CodeInternal
}

// Transient reports whether a repeat of the failed call may succeed: the other
// side was away, full or at fault. A call that ended with its context is not.
func Transient(err error) bool {
	switch ErrorCode(err) {
	case CodeUnavailable, CodeExhausted:
		return true
	case CodeInternal:
		return !IsContextError(err)
	default:
		return false
	}
}

// IsContextError reports whether err says that a context ended, which is the
// caller's doing and not a fault.
func IsContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// FieldError says which part of a JSON document was rejected. HTTP answers it
// with 422.
type FieldError struct {
	Pointer jsontext.Pointer // where, from the root of the decoded document
	Type    string           // machine-readable kind: missing, string_type, int_parsing, literal_error, …
	Message string           // what is allowed
	Input   jsontext.Value   // what was given; nil when the field is missing
}

func (e *FieldError) Error() string {
	where := string(e.Pointer)
	if where == "" {
		where = "document"
	}
	if e.Input == nil {
		return fmt.Sprintf("%s: %s", where, e.Message)
	}
	const most = 200
	given := e.Input
	ellipsis := ""
	if len(given) > most {
		given, ellipsis = given[:most], "…"
	}
	return fmt.Sprintf("%s: %s, got %s%s", where, e.Message, given, ellipsis)
}
