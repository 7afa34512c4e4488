// Package runner executes rollouts: it takes them from the store, runs the
// agent on each, and reports how it went.
//
// The order of an attempt: its resources are fetched, OnRolloutStart runs, the
// trace begins, OnTraceStart runs, the agent runs, OnTraceEnd runs, what the
// agent handed back is recorded, the trace ends, the calls that went through a
// proxy are flushed, OnRolloutEnd runs, and the attempt is reported with its
// typed outcome.
//
// An attempt ends early when the store says that it is over (in the answer to a
// heartbeat or to a span), when its timeout passes, and when the runner stops:
// the agent's context ends, and an agent that does not return within the grace
// period is left behind. A goroutine cannot be killed; the runner logs and
// counts such agents ([Runner.Abandoned]), reports their attempts and moves on.
//
// The package knows nothing of algorithms, nor of how a store keeps or sends
// anything.
package runner
