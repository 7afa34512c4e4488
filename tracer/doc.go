// Package tracer records what an agent does as spans in the store.
//
// A [Tracer] opens a [Trace] per attempt and puts it into the context. All functions below find the trace through the
// context, so a process can trace any number of attempts at once:
//
//   - [EmitReward], [EmitAnnotation], [EmitMessage], [EmitObject] and [EmitException]
//     record what the agent says about itself;
//   - [Do] and [StartOperation] record a step of the agent;
//   - [Transport] records the model calls of an HTTP client;
//   - [Start] and [Provider] record spans of the OpenTelemetry API, [NewSpanProcessor] those of a provider that
//     exists already, and [FromOTel] converts one;
//   - [Instrument] records model calls and spans of agents that contain no tracing code.
//
// Each trace has a bounded queue and a goroutine that sends ended spans to the store in batches, in the order in
// which they ended. A full queue blocks the agent. [Trace.End] returns an error if spans could not be stored.
//
// The store issues the sequence ids. An annotation gets its id at once, as do all spans that ended before it: the id of a
// reward is larger than those of the model calls that ended before it, and smaller than that of the next call.
//
// The package must not know runners or the states of rollouts, and never changes a status. Only [Instrument] changes
// the process.
package tracer
