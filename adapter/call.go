package adapter

import (
	"slices"
	"strconv"
	"strings"

	"github.com/agl-go/agl"
)

// Call is the model call of a triplet.
type Call struct {
	SpanID     string
	SequenceID int64
	// Logprobs are the log-probabilities of the response's tokens under the model that sampled them, one for each
	// token; nil if any is missing.
	Logprobs []float32
	// Version and VersionEnd are the versions of the model when the call began and when it ended, "" when not recorded.
	Version, VersionEnd string
	// Turn names the turn of the conversation, "" when the program did not say.
	Turn string
	// Model is the model that the agent asked for, "" when not recorded.
	Model string
	// Sampling lists the parameters of the request, such as "temperature=0.7", that make samples differ from the
	// model's own distribution (temperature 1 without truncation or penalties); "" when there are none.
	Sampling string
	// FinishReason says why the model stopped, "" when not recorded.
	FinishReason string
	// Failed says that a span of the call has the status ERROR.
	Failed bool
	// Undelivered says that the agent disconnected before it had the whole reply.
	Undelivered bool
}

// describe adds what a span of the call says about its versions and its end.
func (c *Call) describe(span *agl.Span, attrs attributes) {
	if version, ok := attrs.str(agl.AttrModelVersion); ok {
		c.Version = version
	}
	if version, ok := attrs.str(agl.AttrModelVersionEnd); ok {
		c.VersionEnd = version
	}
	if turn, ok := attrs.str(agl.AttrTurn); ok {
		c.Turn = turn
	}
	if delivered, ok := attrs.get(attrDelivered); ok && delivered.Kind() == 'f' {
		c.Undelivered = true
	}
	c.Failed = c.Failed || span.Status.Code == agl.StatusError
	if model, ok := attrs.str(agl.AttrGenAIRequestModel); ok {
		c.Model = model
	}
	if c.Sampling == "" {
		c.Sampling = samplingOf(attrs)
	}
}

// samplingOf returns the parameters of a request that change the distribution, sorted by name.
func samplingOf(attrs attributes) string {
	var found []string
	for _, attr := range attrs {
		name, ok := strings.CutPrefix(attr.key, agl.AttrGenAIRequest+".")
		if !ok || attr.raw.Kind() != '0' {
			continue
		}
		value, err := strconv.ParseFloat(string(attr.raw), 64)
		if known, neutral := neutralSampling(name, value); known && !neutral && err == nil {
			found = append(found, name+"="+string(attr.raw))
		}
	}
	slices.Sort(found)
	return strings.Join(slices.Compact(found), " ")
}

// CallOutcome returns the outcome that the last model call recorded by a proxy gives to an agent that failed; empty
// when that call is not the reason.
func CallOutcome(spans []agl.Span) agl.OutcomeKind {
	var kind agl.OutcomeKind
	last := int64(-1)
	for i := range spans {
		s := &spans[i]
		if _, call := s.Attributes.Get(attrDelivered); !call || s.SequenceID <= last {
			continue
		}
		last = s.SequenceID
		text, _ := s.Attributes.GetString(attrOutcome)
		kind = agl.OutcomeKind(text)
	}
	return kind
}
