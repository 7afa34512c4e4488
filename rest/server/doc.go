// Package server serves an agl.Store over HTTP: the API under /v1/agl, which Python agents and trainers written for
// Agent-lightning v0.3 use, and OTLP for spans at /v1/traces.
//
//	s, err := server.New(server.Config{Store: store, Token: token})
//	err = s.Serve(ctx, listener)
//
// [New] returns an http.Handler. To serve it with your own http.Server, set timeouts for headers and idle
// connections, but no WriteTimeout: dequeues, waits and event streams block. Call [Server.Drain] before
// http.Server.Shutdown, to answer those.
//
// The package contains routing, envelopes, limits, metrics and access. The store decides what an operation does, and
// package agl has the JSON forms of the nouns. The package must not know how a store keeps its data, nor who runs,
// trains or records.
//
// Extensions of the protocol, all optional for clients:
//
//	POST   /queues/rollouts/dequeue      wait_seconds (at most 60) blocks until there is work
//	POST   /queues/rollouts/return       undoes claims, or those of a dequeue whose answer was lost, by its key
//	POST   /queues/rollouts/close, open  while closed, a dequeue answers [] at once with Agl-Queue: closed
//	POST   /rollouts/{id}/cancel         ends a rollout
//	DELETE /rollouts/{id}                removes a finished rollout with its attempts and spans
//	POST   /spans/batch                  many spans in one request
//	POST   /spans/next                   count reserves a block of sequence ids
//	POST   /spans/next/batch             the same for several attempts
//	GET    /events?since=                server-sent events
//	GET    /ready                        200 when the store can serve, else 503 with a reason; needs no token
//	Idempotency-Key: K                   on the POSTs that create, makes a repeat return the first answer
//	Agl-Attempt-State: cancelled         answers a write to an attempt whose agent should stop
package server
