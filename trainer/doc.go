// Package trainer runs a training: an algorithm that learns, an agent that does the tasks, the store between them, the
// runners, an LLM proxy if the agent calls models, and the strategy that decides which of them run in which process.
//
// A [Trainer] is made from a [Config]. [Trainer.Fit] runs the algorithm to its end; [Trainer.Dev] tries the agent on a few
// tasks first, and trains nothing. The same program can play either side of a run on several machines: see
// [execution.ClientServer]. The packages below it read run files and run them, for the command `agl train`.
//
// It is the only package that knows all of these parts; besides main packages, only
// those below it import it. It must not know how any part works.
package trainer
