// Package execution runs the algorithm and the runners of a training run, either
// in one process ([SharedMemory]) or in several that meet at a store server
// ([ClientServer]).
//
// A [Strategy] takes the [Parts] of a run as plain functions, starts, watches and stops them, so that no finished
// rollout is lost and no process is left behind. All strategies follow the same rules:
//
//   - When the algorithm ends, the queue is closed. The runners finish what they
//     have taken and return.
//   - Runners that end first do not stop the algorithm, which may still be
//     processing their results.
//   - The first failure, panic or interrupt of any part stops all of them.
//   - A part that does not stop within its timeout is forced, and the error names
//     it.
//
// A main package reads its role from the environment with [ConfigFromEnv], gets a context that ends with Ctrl-C from
// [NotifyContext], and exits with [ExitCode]:
//
//	ctx, stop := execution.NotifyContext(context.Background())
//	defer stop()
//	err := execution.SharedMemory{}.Execute(ctx, execution.Parts{Algorithm: train, Runner: run, OpenStore: open})
//	os.Exit(execution.ExitCode(err))
//
// The package starts and stops functions and processes. It must not know what an
// algorithm, an agent or a runner loop does.
package execution
