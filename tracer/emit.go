package tracer

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"reflect"
	"strconv"
	"time"

	"github.com/agl-go/agl"
)

// Option changes what an emitter records.
type Option func(*emission)

type emission struct {
	attrs []agl.Attr
	tags  []string
	links []Link
	local bool
}

// WithAttributes adds attributes.
func WithAttributes(attrs ...agl.Attr) Option {
	return func(e *emission) { e.attrs = append(e.attrs, attrs...) }
}

// WithTags adds tags, which are any strings; [Tags] reads them.
func WithTags(tags ...string) Option {
	return func(e *emission) { e.tags = append(e.tags, tags...) }
}

// WithLinks names the other spans that the span is about; see [LinkedSpans].
func WithLinks(links ...Link) Option {
	return func(e *emission) { e.links = append(e.links, links...) }
}

// WithoutPropagation makes an emitter return the span without recording it. The context needs no trace then.
func WithoutPropagation() Option { return func(e *emission) { e.local = true } }

func newEmission(opts []Option) emission {
	var e emission
	for _, opt := range opts {
		opt(&e)
	}
	return e
}

func (e emission) attributes(attrs []agl.Attr) []agl.Attr {
	attrs = append(attrs, e.attrs...)
	attrs = append(attrs, LinkAttributes(e.links...)...)
	return append(attrs, TagAttributes(e.tags...)...)
}

// emit records a span that starts and ends now.
func emit(ctx context.Context, d agl.SpanDraft, attrs []agl.Attr, opts []Option) (agl.Span, error) {
	e := newEmission(opts)
	attributes, err := agl.NewAttributes(e.attributes(attrs)...)
	if err != nil {
		return agl.Span{}, err
	}
	d.Attributes = attributes
	d.Status.Code = cmp.Or(d.Status.Code, agl.StatusOK)
	if e.local {
		return SpanFromDraft(ctx, d), nil
	}
	t, err := activeTrace(ctx, "emit "+d.Name)
	if err != nil {
		return agl.Span{}, err
	}
	span := t.draft(ctx, d)
	place, err := t.add(ctx, span)
	if err != nil {
		return span, err
	}
	if d.Name == agl.SpanAnnotation {
		t.queue.number(ctx, place)
	}
	return span, nil
}

// EmitReward records a scalar reward for what the attempt has done so far: its
// sequence id, which is fetched from the store before EmitReward returns, is larger
// than those of the model calls that have ended and smaller than that of the next
// call. A value that is not finite is agl.ErrInvalid.
func EmitReward(ctx context.Context, value float64, opts ...Option) (agl.Span, error) {
	return EmitRewards(ctx, []agl.Reward{{Name: "primary", Value: value}}, opts...)
}

// EmitRewards records a reward of several dimensions. The first is the primary one, which algorithms use by default.
// An empty list, a repeated name or a value that is not finite is agl.ErrInvalid.
func EmitRewards(ctx context.Context, rewards []agl.Reward, opts ...Option) (agl.Span, error) {
	attrs, err := rewardAttrs(rewards)
	if err != nil {
		return agl.Span{}, err
	}
	return emit(ctx, agl.SpanDraft{Name: agl.SpanAnnotation}, attrs, opts)
}

// RewardDraft returns the draft of the span that [EmitRewards] records, with the same errors.
func RewardDraft(rewards ...agl.Reward) (agl.SpanDraft, error) {
	attrs, err := rewardAttrs(rewards)
	if err != nil {
		return agl.SpanDraft{}, err
	}
	attributes, err := agl.NewAttributes(attrs...)
	return agl.SpanDraft{Name: agl.SpanAnnotation, Attributes: attributes, Status: agl.SpanStatus{Code: agl.StatusOK}}, err
}

func rewardAttrs(rewards []agl.Reward) ([]agl.Attr, error) {
	for i, r := range rewards {
		for _, earlier := range rewards[:i] { // there are few dimensions
			if earlier.Name == r.Name {
				return nil, agl.Errorf(agl.CodeInvalid, "reward %q: given twice, names must be unique", r.Name)
			}
		}
	}
	return agl.RewardAttributes(rewards...)
}

// EmitAnnotation records facts about the attempt: a map or struct, whose nested names
// are joined by dots. Lists of strings, numbers or booleans stay lists, other lists
// are expanded by index, and null is left out.
func EmitAnnotation(ctx context.Context, annotation any, opts ...Option) (agl.Span, error) {
	raw, err := encode(annotation)
	if err != nil {
		return agl.Span{}, agl.Errorf(agl.CodeInvalid, "annotation: a %T has no JSON form: %w", annotation, err)
	}
	if raw.Kind() != '{' {
		return agl.Span{}, agl.Errorf(agl.CodeInvalid, "annotation: got a %T, must be a map or a struct", annotation)
	}
	return emit(ctx, agl.SpanDraft{Name: agl.SpanAnnotation}, flattenJSON(nil, "", raw), opts)
}

// EmitMessage records a message for people to read, such as a log line.
func EmitMessage(ctx context.Context, body string, opts ...Option) (agl.Span, error) {
	return emit(ctx, agl.SpanDraft{Name: agl.SpanMessage}, []agl.Attr{{Key: agl.AttrMessageBody, Value: body}}, opts)
}

// EmitObject records a value. A string, boolean, integer, float or byte slice is
// recorded as a literal of the type str, bool, int, float or bytes (in base64), any
// other value as JSON under the name of its Go type.
func EmitObject(ctx context.Context, value any, opts ...Option) (agl.Span, error) {
	kind, literal, ok := literalOf(value)
	attrs := []agl.Attr{{Key: agl.AttrObjectType, Value: kind}, {Key: agl.AttrObjectLiteral, Value: literal}}
	if !ok {
		raw, err := encode(value)
		if err != nil {
			return agl.Span{}, agl.Errorf(agl.CodeInvalid, "object: a %T has no JSON form: %w", value, err)
		}
		attrs = []agl.Attr{{Key: agl.AttrObjectType, Value: fmt.Sprintf("%T", value)}, {Key: agl.AttrObjectJSON, Value: string(raw)}}
	}
	return emit(ctx, agl.SpanDraft{Name: agl.SpanObject}, attrs, opts)
}

func literalOf(value any) (kind, literal string, ok bool) {
	switch v := reflect.ValueOf(value); v.Kind() {
	case reflect.String:
		return "str", v.String(), true
	case reflect.Bool:
		return "bool", strconv.FormatBool(v.Bool()), true
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "int", strconv.FormatInt(v.Int(), 10), true
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "int", strconv.FormatUint(v.Uint(), 10), true
	case reflect.Float32, reflect.Float64:
		return "float", strconv.FormatFloat(v.Float(), 'g', -1, 64), true
	default:
		if b, isBytes := value.([]byte); isBytes {
			return "bytes", base64.StdEncoding.EncodeToString(b), true
		}
		return "", "", false
	}
}

// EmitException records an error and, unless empty, a stack trace. A nil error is agl.ErrInvalid.
func EmitException(ctx context.Context, cause error, stack string, opts ...Option) (agl.Span, error) {
	if cause == nil {
		return agl.Span{}, agl.Errorf(agl.CodeInvalid, "exception: got nil, must be an error")
	}
	return emit(ctx, exceptionDraft(cause), exceptionAttributes(cause, stack, false), opts)
}

// ExceptionDraft returns the draft of the span that [EmitException] records. cause must not be nil.
func ExceptionDraft(cause error, stack string) (agl.SpanDraft, error) {
	d := exceptionDraft(cause)
	var err error
	d.Attributes, err = agl.NewAttributes(exceptionAttributes(cause, stack, false)...)
	return d, err
}

func exceptionDraft(cause error) agl.SpanDraft {
	return agl.SpanDraft{
		Name:   agl.SpanException,
		Status: agl.SpanStatus{Code: agl.StatusError, Description: agl.Some(cause.Error())},
	}
}

func exceptionAttributes(cause error, stack string, escaped bool) []agl.Attr {
	attrs := []agl.Attr{
		{Key: agl.AttrExceptionType, Value: exceptionType(cause)},
		{Key: agl.AttrExceptionMessage, Value: cause.Error()},
		{Key: agl.AttrExceptionEscaped, Value: escaped},
	}
	if stack != "" {
		attrs = append(attrs, agl.Attr{Key: agl.AttrExceptionStacktrace, Value: stack})
	}
	return attrs
}

// exceptionType returns the Go type of an error, or the type that its ExceptionType method returns: that of a panic's
// value, for example.
func exceptionType(cause error) string {
	if e, ok := cause.(interface{ ExceptionType() string }); ok {
		return e.ExceptionType()
	}
	return fmt.Sprintf("%T", cause)
}

func exceptionEvent(cause error, at time.Time) (agl.SpanEvent, error) {
	attrs, err := agl.NewAttributes(exceptionAttributes(cause, "", true)...)
	return agl.SpanEvent{Name: "exception", Attributes: attrs, Timestamp: agl.Some(agl.TimestampOf(at))}, err
}
