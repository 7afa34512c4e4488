// Package e2e runs real processes against each other: training programs in their strategies, store servers, terminals that
// press Ctrl-C. The tests send real signals and look at exit codes, at what is left running, and at what the store holds. It
// has no code of its own.
package e2e
