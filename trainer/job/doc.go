// Package job runs a run file: it makes the parts that the file names, wires them
// by the trainer, and keeps the output folder, in which a run is found again by
// who reads its report and by who goes on with it.
//
// It must not know how the file is written, nor what a command line looks like.
package job
