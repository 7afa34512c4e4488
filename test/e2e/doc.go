// Package e2e runs real processes against each other: training programs with each strategy, store servers, terminals that
// press Ctrl-C. The tests send real signals and check exit codes, remaining processes, and the contents of the store. It has
// no code of its own.
package e2e
