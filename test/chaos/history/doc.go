// Package history records what the clients of a store saw, and judges whether a store that loses nothing could have given
// these answers.
//
//	recorder := history.NewRecorder(file)
//	recorder.Do(…) // for each operation of the load, and at the end for reads of everything
//	err := recorder.Flush()
//
//	ops, err := history.Parse(file)
//	report := history.Check(ops)
//
// A [Recorder] writes one line for the call of an operation and one for its outcome, which is ok, refused, or unknown if the
// answer was lost. [Check] needs nothing but the history, so that a kept history can be judged again.
//
// The package must not know how the load is made or what the store is.
package history
