// Package tracer records what an agent does as spans in the store.
//
// A [Tracer] opens a [Trace] per attempt and puts it into the context. From
// there on everything is found through the context, so any number of attempts
// trace at once in one process: spans of the OpenTelemetry API ([Start],
// [Provider]), calls of a model through [Transport], and what an agent emits by
// itself ([EmitReward], [EmitAnnotation], [EmitMessage], [EmitObject],
// [EmitException], [StartOperation]).
//
// Each trace has a bounded queue and one goroutine that streams ended spans to
// the store in batches, in the order in which they ended, under sequence ids
// that the store issues. Full queues slow the agent down; a span that could not
// be stored is an error of [Trace.End], never silence.
//
// The package knows neither rollouts' lives nor runners: it never changes the
// status of anything. It leaves OpenTelemetry's global provider alone.
package tracer
