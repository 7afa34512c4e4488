// Package agl is the vocabulary of agl, which trains AI agents: the nouns (rollout, attempt, span, resources, worker,
// reward), the one JSON form of each, and the few interfaces that make up the domain.
//
// An algorithm puts tasks into a [Store] as rollouts. Runners take them, run an [Agent] on each, and write [Span] values and
// rewards back. An [Adapter] turns the spans into learning signals, the algorithm publishes better [Resources], and the loop
// continues. Algorithm and runners never talk to each other: everything passes through the store, so that each side can
// scale, crash and restart alone.
//
//	Algorithm ── rollouts, resources ──▶ Store ◀── spans, outcomes ── Runner ── Agent
//	    ▲                                  │
//	    └────────── Adapter ◀── spans ─────┘
//
// An agent is a function from a [Task] to a [Result]:
//
//	agent := agl.AgentFunc(func(ctx context.Context, task agl.Task) (agl.Result, error) {
//		llm, err := task.LLM() // the model that this attempt must call
//		…
//		return agl.RewardResult(1), nil
//	})
//
// Package store implements [Store], package runner runs agents, package trainer runs whole trainings, packages
// rest/server and rest/client put a store behind HTTP, and package tracer records what happens inside an agent. To
// write another store, embed [UnimplementedStore]; to watch attempts, implement [Hook].
//
// JSON that only passes through (task inputs, metadata, span attributes, sampling parameters, heartbeat statistics) is kept
// as the bytes that came in: 1.0 stays 1.0, 64-bit integers survive, and so does the order of keys. Values that a Store
// hands out are immutable snapshots: do not write to their byte slices.
//
// Every noun marshals to its wire form with encoding/json and with the v2 library, as a value and behind a pointer.
// AppendJSON is exact: it copies pass-through JSON byte for byte, whereas a JSON library may remove white space and
// change how strings are escaped.
//
// The package must not know how anything is stored, sent, traced or trained.
package agl
