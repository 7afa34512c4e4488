package trainer

import (
	"cmp"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/runner/process"
)

// Failure is a group of rollouts that failed for the same reason.
type Failure struct {
	// Reason is one line, such as "ValueError: boom".
	Reason string
	// Message is that of the first rollout in full, such as its traceback.
	Message string
	// Count is the number of rollouts, First the id of the first one.
	Count int
	First string
}

func (f Failure) String() string {
	return fmt.Sprintf("%s ×%d, first in %s", f.Reason, f.Count, f.First)
}

func noReward(mask algorithm.Mask) string {
	if mask == algorithm.MaskMissingReward {
		return "the agent ended well without a reward"
	}
	return string(mask)
}

// reasonOf is the line of a failure that says what happened.
// Attempts whose time is up are alike, whether the runner or the store has ended them.
func reasonOf(o agl.Outcome, timeout agl.Null[float64]) string {
	if o.Kind == agl.OutcomeTimeout && timeout.Valid {
		return fmt.Sprintf("timeout: the agent had not ended after %gs", timeout.V)
	}
	reason := ReasonLine(o.Message)
	if o.Kind == agl.OutcomeAgentError && reason != "" || strings.HasPrefix(reason, string(o.Kind)+": ") {
		return reason
	}
	return strings.TrimSuffix(string(o.Kind)+": "+reason, ": ")
}

// exception matches the line in which Python, Node, Java and Go name what was thrown. Node and Java go on behind it, and so
// do exceptions whose message has several lines.
var exception = regexp.MustCompile(`^(?:the agent ended with [^:]*: )?((?:[\w.$]*(?:Error|Exception)\b[^:]*:|panic: |Exception in thread ).*)`)

// ReasonLine is the line of an error's message that says what happened: the last one that names an exception or, without
// one, the last one.
func ReasonLine(text string) string {
	for _, line := range slices.Backward(strings.Split(text, "\n")) {
		if found := exception.FindStringSubmatch(strings.TrimRight(line, " \r")); found != nil {
			return found[1]
		}
	}
	return lastLine(text)
}

// lastLine is the last line of a text that is not empty.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:])
}

// WithCallError adds to the error of an agent why its last call of a model failed, which its client may not have told.
func WithCallError(message string, spans []agl.Span) string {
	if why := callError(spans); !strings.Contains(message, why) {
		return message + "\nits last call of the model failed: " + why
	}
	return message
}

// callError is why the last call of a model failed; empty if it did not.
func callError(spans []agl.Span) string {
	if s := lastOfName(spans, agl.SpanProxyRequest); s != nil && s.Status.Code == agl.StatusError {
		return s.Status.Description.V
	}
	return ""
}

// noSuchModel reports whether the last call asked for a model that the run's proxy does not have.
func noSuchModel(spans []agl.Span) bool {
	s := lastOfName(spans, agl.SpanLiteLLMRequest)
	if s == nil {
		return false
	}
	source, _ := s.Attributes.GetString(record.AttrErrorSource)
	status, _ := s.Attributes.GetInt(record.AttrStatus)
	return source == record.SourceGateway && status == http.StatusNotFound
}

// lastOfName is the last span of a name; nil if there is none.
func lastOfName(spans []agl.Span, name string) *agl.Span {
	for i := range slices.Backward(spans) {
		if spans[i].Name == name {
			return &spans[i]
		}
	}
	return nil
}

// LastOutput is the last line that the agent of an attempt wrote to standard output,
// as far as the spans hold it.
func LastOutput(spans []agl.Span) string { return lastOf(spans, "stdout") }

// MisplacedReward is the last line that the agent of an attempt wrote to standard error, if that is a reward, which is only
// read from standard output.
func MisplacedReward(spans []agl.Span) string {
	if line := lastOf(spans, "stderr"); process.IsReward(line) {
		return line
	}
	return ""
}

// lastOf is the last line of an output stream.
func lastOf(spans []agl.Span, name string) string {
	for i := range slices.Backward(spans) {
		if stream, _ := spans[i].Attributes.GetString(process.AttrStream); stream == name {
			body, _ := spans[i].Attributes.GetString(agl.AttrMessageBody)
			return lastLine(body)
		}
	}
	return ""
}

// maxFailures bounds the groups of failures: an agent may put anything into messages.
const maxFailures = 1000

// failures are groups by reason.
type failures map[string]*Failure

func (f failures) add(id, reason, message string) {
	const longest = 300
	if runes := []rune(reason); len(runes) > longest {
		reason = string(runes[:longest-1]) + "…"
	}
	if group := f[reason]; group != nil {
		group.Count++
	} else if len(f) < maxFailures {
		f[reason] = &Failure{Reason: reason, Message: message, Count: 1, First: id}
	}
}

// sorted returns the failures, the most frequent first.
func (f failures) sorted() []Failure {
	list := make([]Failure, 0, len(f))
	for _, group := range f {
		list = append(list, *group)
	}
	slices.SortFunc(list, func(a, b Failure) int {
		return cmp.Or(cmp.Compare(b.Count, a.Count), cmp.Compare(a.First, b.First))
	})
	return list
}
