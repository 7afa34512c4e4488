// Package release decides, from the sessions of real users, whether a candidate replaces the stable version: new
// weights behind a model, or new prompts.
//
// A release begins with a share of the sessions, the canary. Each session that has ended is an [Observation];
// [Evidence] sums them up, and [Gates.Decide] says after each session whether the release is promoted, rolled back,
// or continues. The tests are valid at any time, so deciding after every session costs nothing: see [Sequence]. A
// release is never promoted just because time has passed.
//
//	releases := release.New(documents)
//	r, err := releases.ProposeRelease(ctx, release.Proposal{Candidate: release.Version{ResourcesID: id}, By: "me"})
//	go (&release.Watcher{Releases: releases, Collector: collector, Spans: store}).Run(ctx)
//
// [Releases] keeps releases in the documents of a store. One compare-and-set writes a decision together with its
// evidence and the cursor of the sessions that it counts, so each session counts exactly once, even if a process is
// killed.
//
// The package must not know how sessions are routed or learned from.
package release
