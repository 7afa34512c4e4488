// Package runner executes rollouts: it takes them from the store, runs the agent on
// each, and reports the outcome.
//
// A [Runner] is made from a [Config] with a store and an [agl.Agent]. Run takes rollouts from the queue; Step
// executes a single one, for tests and debugging. Package runner/process has an agent that runs any program.
//
//	r, err := runner.New(runner.Config{Store: store, Agent: agent, Workers: 8})
//	err = r.Run(ctx)
//
// The steps of an attempt: its resources are fetched, OnRolloutStart runs, the trace starts, OnTraceStart runs, the
// agent runs and the attempt is reported as running, OnTraceEnd runs, the agent's result is recorded, the trace ends,
// calls through a proxy are flushed, OnRolloutEnd runs, the attempt is reported with its typed outcome, and
// OnReported runs. Step also makes the further attempts that a retry condition asks for; StepAttempt executes an
// attempt that was started elsewhere.
//
// An attempt ends early if the store says that it has ended (in the answer to a heartbeat or to spans), if its
// timeout passes, or if the runner stops. Then the agent's context ends. A goroutine cannot be killed, so an agent
// that does not return within the grace period is abandoned: the runner logs it, counts it ([Runner.Abandoned]),
// reports its attempt and continues.
//
// The package must not know algorithms, nor how a store keeps or sends anything.
package runner
