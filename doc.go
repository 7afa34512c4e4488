// Package agl is the vocabulary of agl: what a rollout, an attempt, a span, a
// resource, a worker and a reward are, the one JSON form that each of them has,
// and the few interfaces that are the domain (Store, Agent, Hook, Tracer,
// Adapter, Algorithm).
//
// An algorithm puts tasks into a [Store] as rollouts; runners take them, run an
// [Agent], and stream back [Span] values and rewards; an [Adapter] turns spans
// into learning signals; the algorithm updates the [Resources], and the loop
// goes on. The algorithm and the runners never talk to each other: everything
// passes through the store.
//
// JSON that only passes through (task inputs, metadata, span attributes,
// sampling parameters, heartbeat statistics) is kept as the bytes that came in:
// 1.0 stays 1.0, 64-bit integers survive, and so does the order of keys. Values
// that a Store hands out are immutable snapshots: readers must not write to
// their byte slices.
//
// The package imports the standard library and the JSON library only. It must
// not know how anything is stored, sent, traced or trained.
package agl
