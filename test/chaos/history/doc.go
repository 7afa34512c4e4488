// Package history records what the clients of a store saw and judges whether a
// store that loses nothing could have answered so.
//
// A [Recorder] writes one line for the call of an operation and one for its outcome, which is ok, a refusal, or unknown:
// after a lost answer it may or may not have happened. At the end of a run, reads of everything are recorded in the same
// way. [Check] holds a history against the rules; it needs nothing but the history, so that one that was kept can be judged
// again.
//
// The package must not know how the load is made or what the store is.
package history
