package agl

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// Code classifies an [Error]. It determines the HTTP status and whether a retry can help.
type Code string

// The codes. [Transient] says which are worth a retry.
const (
	CodeInvalid       Code = "invalid"       // a value that is wrong in any state
	CodeNotFound      Code = "not_found"     // an unknown id
	CodeIllegalState  Code = "illegal_state" // a call that the present state forbids
	CodeConflict      Code = "conflict"      // a name or an idempotency key is already used for something else
	CodeEvicted       Code = "evicted"       // the data was evicted to free memory
	CodeExhausted     Code = "exhausted"     // storage or memory is full, and nothing can be evicted
	CodeUnavailable   Code = "unavailable"   // a dependency is unreachable or shutting down
	CodeUnauthorized  Code = "unauthorized"  // the token is missing or wrong
	CodeUnimplemented Code = "unimplemented" // this implementation lacks the operation
	CodeInternal      Code = "internal"      // a bug or an unexpected failure
)

// Error is the error type of the domain. errors.Is matches it with the Err variable of its code.
type Error struct {
	Code    Code
	Message string
	Err     error // the cause, if any
}

// The errors to test for with errors.Is, one for each code but CodeInternal.
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

// Errorf returns an *Error. A %w verb sets its cause.
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

// Is reports whether target is the Err variable of the error's code.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Message == "" && t.Err == nil && t.Code == e.Code
}

// ErrorCode returns the code of the first *Error in err's chain. A [FieldError] is CodeInvalid; any other error, such as
// that of a context, is CodeInternal; nil is "".
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

// Transient reports whether a retry of the failed call may succeed: the other side
// was unavailable, full or broken. A call that ended with its context is not.
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

// IsContextError reports whether err says that a context ended. The caller ended it, so it is not a fault.
func IsContextError(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// FieldError says which part of a JSON document was rejected and why. Over HTTP it is a 422.
type FieldError struct {
	Pointer jsontext.Pointer // the place, from the root of the decoded document
	Type    string           // the kind of error, for programs: missing, string_type, int_parsing, literal_error, …
	Message string           // what is allowed
	Input   jsontext.Value   // what was given; nil if the field is missing
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

// reader returns a reader of wire forms. It rejects a value with a [FieldError].
func reader(dec *jsontext.Decoder) rawjson.Reader {
	return rawjson.Reader{Decoder: dec, Reject: func(at jsontext.Pointer, kind, message string, input jsontext.Value) error {
		return &FieldError{Pointer: at, Type: kind, Message: message, Input: input}
	}}
}
