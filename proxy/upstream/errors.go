package upstream

import (
	"errors"
	"math"
	"net/http"
	"time"

	"github.com/agl-go/agl/proxy/openai"
)

// The causes with which upstream itself cancels a call.
var (
	errIdle    = errors.New("the backend sent nothing for too long")
	errAborted = errors.New("the call was aborted: the model is being updated")
)

// refusal returns the error of a call that the agent may repeat after wait.
func refusal(status int, code string, wait time.Duration, message string) *openai.Error {
	kind := openai.OverloadedError
	if status == http.StatusTooManyRequests {
		kind = openai.RateLimitError
	}
	e := openai.NewError(status, kind, code, message)
	e.RetryAfter = max(1, int(math.Ceil(wait.Seconds())))
	return e
}
