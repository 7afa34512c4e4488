// Package client drives an engine that speaks the Tinker protocol over HTTP, behind the same interfaces as
// an engine of this process: [Client] is a tinker.Service.
//
// # Lost answers
//
// Some servers run a submit that is sent twice twice. So a call that changes the model is repeated only if
// the server cannot have seen it (it refused the connection, or answered 429 or 503), or if it is known to
// run a repeat once ([Engine].Idempotent). Where the answer of ForwardBackward or OptimStep is lost otherwise,
// the call ends with [ErrInDoubt], and so does every later training call of that model until LoadWeights has
// replaced its state: no gradient is ever applied twice, and none is silently missing. The same holds for a
// call that ends with its context, and for a batch in several requests of which a later one fails.
//
// # Limits of engines
//
// What the protocol does not say of an engine is said by [Engine]. Where snapshots are not immutable, training
// calls wait for samples that are running, and sampling a snapshot that is not the model's newest, or not its
// weights any more, is agl.CodeIllegalState instead of other weights than asked for. Where losses are
// averaged, batches are scaled so that the gradient is that of their sum, and a learning rate means the same as elsewhere.
//
// The package must not know of any engine's code, of text, or of algorithms.
package client
