// Package job runs a run file: it makes the parts that the file names, wires them
// with package trainer, and writes the results to the output folder.
//
//	result, err := job.Train(ctx, "agl.yaml", agl.AgentFunc(answer))
//
// [Train] shows progress and result on standard output. [Run] leaves that to its caller, and
// [DryRun] runs one rollout. The package must not know how the file is written, which algorithms
// there are, nor what a command line looks like.
package job
