package upstream

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl/proxy/openai"
)

// The causes with which upstream itself cancels a call.
var (
	errIdle    = errors.New("the backend sent nothing for too long")
	errAborted = errors.New("the call was aborted: the model is being updated")

	errComplete = errors.New("the reply is complete, but its connection stays open")
)

// statusError is a status that no reply has.
type statusError int

func (e statusError) Error() string {
	return fmt.Sprintf("it answered %03d, which is not the status of a reply", int(e))
}

// notHTTP reports whether err says that an answer breaks the rules of HTTP. net/http has no type for most of these errors.
func notHTTP(err error) bool {
	_, status := errors.AsType[statusError](err)
	return status || err != nil && strings.HasPrefix(err.Error(), "net/http: HTTP/1.x transport connection broken: ") && !brokeOff(err)
}

// brokeOff reports whether err says that a connection, which was there, has ended.
func brokeOff(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || ok && (op.Op == "read" || op.Op == "write" || op.Op == "readfrom") ||
		err != nil && (strings.HasPrefix(err.Error(), "http2: ") || strings.HasPrefix(err.Error(), "stream error: ")) // net/http exports no type of either
}

// refusal returns the error of a call that the agent may repeat after wait.
func refusal(status int, code string, wait time.Duration, message string) *openai.Error {
	kind := openai.OverloadedError
	if status == http.StatusTooManyRequests {
		kind = openai.RateLimitError
	}
	return openai.NewError(status, kind, code, message).After(wait)
}
