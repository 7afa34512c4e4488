// Package job runs a run file: it makes the parts that the file names, wires them
// with package trainer, and writes the results to the output folder.
//
// [Run] runs it, [DryRun] runs one rollout. The package must not know how the file is
// written, which algorithms there are, nor what a command line looks like.
package job
