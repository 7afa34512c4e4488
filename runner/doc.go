// Package runner executes rollouts: it takes them from the store, runs the agent on
// each, and reports the outcome.
//
// A [Runner] is made from a [Config] with a store and an [agl.Agent]. Run takes
// rollouts from the queue; Step executes a single one, for tests and debugging.
// Package runner/process has an agent that runs any program.
//
// The steps of an attempt: its resources are fetched, OnRolloutStart runs, the trace starts, OnTraceStart runs, the agent
// runs and the attempt is reported as running, OnTraceEnd runs, the agent's result is recorded, the trace ends, the calls
// that went through a proxy are flushed, OnRolloutEnd runs, the attempt is reported with its typed outcome, and OnReported
// runs. Step also makes the attempts that a retry condition wants; StepAttempt executes one that was started elsewhere.
//
// An attempt ends early when the store says that it has ended (in the answer to a
// heartbeat or to a span), when its timeout passes, and when the runner stops. Then
// the agent's context ends. A goroutine cannot be killed, so an agent that does not
// return within the grace period is left behind: the runner logs it, counts it
// ([Runner.Abandoned]), reports its attempt and goes on.
//
// The package must not know algorithms, nor how a store keeps or sends anything.
package runner
