package tracer

import (
	"context"
	"crypto/rand"
	"errors"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/agl-go/agl"
)

// Provider returns the OpenTelemetry provider of the trace in ctx, for
// instrumentations that take one; outside of a trace it records nothing.
func Provider(ctx context.Context) trace.TracerProvider {
	if t, ok := FromContext(ctx); ok {
		return t.provider
	}
	return noop.NewTracerProvider()
}

// Start begins an OpenTelemetry span of the attempt. Outside of a trace the span records nothing. The caller ends it.
func Start(ctx context.Context, name string, attrs ...attribute.KeyValue) (context.Context, trace.Span) {
	return Provider(ctx).Tracer(scopeName).Start(ctx, name, trace.WithAttributes(attrs...)) //nolint:spancheck // the caller ends it
}

// Operation is a step of an agent, begun by [StartOperation].
type Operation struct {
	trace *Trace // nil if it is not recorded
	draft agl.SpanDraft
	attrs []agl.Attr
}

// StartOperation begins a step of the agent. Spans started in the context that
// it returns are its children. The input (nil is none) becomes attributes: the
// names of nested objects are joined by dots. The caller ends the operation.
func StartOperation(ctx context.Context, name string, input any, opts ...Option) (context.Context, *Operation, error) {
	e := newEmission(opts)
	attrs := []agl.Attr{{Key: agl.AttrOperationName, Value: name}}
	if input != nil {
		flat, err := flatten(agl.AttrOperationInput, input)
		if err != nil {
			return ctx, nil, err
		}
		attrs = append(attrs, flat...)
	}
	op := &Operation{attrs: e.attributes(attrs)}
	if _, err := agl.NewAttributes(op.attrs...); err != nil {
		return ctx, nil, err
	}
	if e.local {
		return ctx, op, nil
	}
	t, err := activeTrace(ctx, "operation "+name)
	if err != nil {
		return ctx, nil, err
	}
	op.trace = t
	var spanID trace.SpanID
	rand.Read(spanID[:])
	sc := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: t.traceID, SpanID: spanID, TraceFlags: trace.FlagsSampled,
	})
	op.draft = agl.SpanDraft{
		Name: agl.SpanOperation, SpanID: sc.SpanID().String(), TraceID: sc.TraceID().String(),
		ParentID: t.parentOf(ctx), StartTime: agl.TimestampOf(time.Now()),
	}
	return trace.ContextWithSpanContext(ctx, sc), op, nil
}

// End records the operation with its output and its error; nil means none.
func (o *Operation) End(output any, cause error) error {
	attrs := o.attrs
	if output != nil {
		flat, err := flatten(agl.AttrOperationOutput, output)
		if err != nil {
			return err
		}
		attrs = append(attrs, flat...)
	}
	if o.trace == nil {
		return nil
	}
	now := time.Now()
	d := o.draft
	d.EndTime = agl.TimestampOf(now)
	d.Status.Code = agl.StatusOK
	if cause != nil {
		d.Status = agl.SpanStatus{Code: agl.StatusError, Description: agl.Some(cause.Error())}
		event, err := exceptionEvent(cause, now)
		if err != nil {
			return err
		}
		d.Events = []agl.SpanEvent{event}
	}
	var err error
	if d.Attributes, err = agl.NewAttributes(attrs...); err != nil {
		return err
	}
	return o.trace.record(d)
}

// Do runs fn as an operation and records its input, output and error. A panic of fn
// is recorded and not recovered.
func Do[T any](ctx context.Context, name string, input any, fn func(context.Context) (T, error), opts ...Option) (output T, err error) {
	ctx, op, err := StartOperation(ctx, name, input, opts...)
	if err != nil {
		return output, err
	}
	returned := false
	defer func() {
		if !returned {
			err = errors.Join(err, op.End(nil, errors.New("it panicked")))
		}
	}()
	output, err = fn(ctx)
	returned = true
	if err != nil {
		return output, errors.Join(err, op.End(nil, err))
	}
	return output, op.End(output, nil)
}
