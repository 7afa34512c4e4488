// Package rest is the wire of the store: the server and the client of the HTTP
// API under /v1/agl, which Python agents and trainers written for
// Agent-lightning speak too.
//
// [Server] is an http.Handler in front of any agl.Store. [Client] is an
// agl.Store that reaches one over HTTP. Both hold only the envelopes of
// requests and answers: the JSON form of the nouns is package agl's, and what
// an operation does is the store's business. The package must not know how a
// store keeps anything, nor what runs, trains or records.
//
// Beyond the protocol of the reference, all of it optional for clients:
//
//	POST   /queues/rollouts/dequeue      wait_seconds (at most 60) blocks until there is work
//	POST   /queues/rollouts/close, open  while closed, a dequeue answers [] at once with Agl-Queue: closed
//	POST   /rollouts/{id}/cancel         ends a rollout
//	DELETE /rollouts/{id}                removes a finished rollout with its attempts and spans
//	POST   /spans/batch                  many spans in one request
//	POST   /spans/next                   count reserves a block of sequence ids
//	POST   /spans/next/batch             the same for several attempts
//	GET    /events?since=                server-sent events
//	GET    /ready                        200 when the database can be used, else 503 with a reason; needs no token
//	Idempotency-Key: K                   on the POSTs that create, makes a repeat return the first answer
//	Agl-Abandon: true                    on the repeat of a dequeue, gives back what the first request claimed
//	Agl-Attempt-State: cancelled         answers a write to an attempt whose agent should stop
package rest
