// Package release decides, by the sessions of real users, whether a candidate takes the
// place of what is stable: new weights behind a model, or new prompts.
//
// A release begins with a share of the sessions, the canary. Each session that has ended is
// an [Observation]; [Evidence] sums them up, and [Gates.Decide] says after each whether the
// release is promoted, rolled back, or goes on. The tests are valid whenever they are looked
// at, so that looking after every session costs nothing: see [Sequence]. A release is never
// promoted by time alone.
//
// [Releases] keeps releases in the documents of a store. A decision is written together with
// the evidence for it and the cursor of the sessions that it counts, by one compare-and-set:
// each session counts once, whoever is killed.
//
// The package must not know how sessions are routed or learned from.
package release
