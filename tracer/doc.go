// Package tracer records what an agent does as spans in the store.
//
// A [Tracer] opens a [Trace] per attempt and puts it into the context. Everything else
// finds the trace through the context, so any number of attempts trace at once in one
// process:
//
//   - [EmitReward], [EmitAnnotation], [EmitMessage], [EmitObject] and [EmitException]
//     record what the agent says about itself;
//   - [Do] and [StartOperation] record a step of the agent;
//   - [Transport] records the model calls of an HTTP client;
//   - [Start] and [Provider] record spans of the OpenTelemetry API, [NewSpanProcessor] those of a provider that
//     exists already, and [FromOTel] converts one;
//   - [Instrument] records both of agents that have no line for it.
//
// Each trace has a bounded queue, and a goroutine that sends ended spans to the store in batches, in the order in which they
// ended; the store issues their sequence ids, for annotations and all before them at once: a reward's is larger than those of
// the calls that ended before it, and smaller than that of the next call. A full queue slows the agent down. Spans that could
// not be stored are an error of [Trace.End].
//
// The package must not know the lives of rollouts, nor runners: it never changes the status of anything. It changes nothing of
// the process but by [Instrument].
package tracer
