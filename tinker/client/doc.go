// Package client drives an engine that speaks the Tinker protocol over HTTP. Its [Client] is a [tinker.Service], so that
// an algorithm trains on a server elsewhere as it trains on an engine of its own process:
//
//	c, err := client.New(client.Config{URL: "http://gpu:8000"})
//	model, err := c.CreateModel(ctx, tinker.CreateModelParams{BaseModel: "Qwen/Qwen3-4B"})
//
// # Lost answers
//
// Some servers run a call twice that they receive twice. A call that changes the model is therefore sent again only if the
// server cannot have run it (it refused the connection, or answered 429 or 503), or if the engine is known to run a repeat
// once ([engines.Engine].Idempotent). Where the answer to ForwardBackward or OptimStep is lost otherwise, the call fails
// with [ErrInDoubt], and so does every later training call of that model until LoadWeights has replaced its state: no
// gradient is ever applied twice, and none is silently missing. The same holds for a call that ends with its context, and
// for a batch that is sent in several requests when a later one fails.
//
// # Limits of engines
//
// [engines.Engine] says what an engine can do where the protocol does not. Where snapshots change, training calls wait
// for running samples, and sampling a snapshot that is not the model's newest, or no longer its weights, fails with
// agl.ErrIllegalState instead of returning samples of other weights. Where an engine averages losses, batches are scaled
// so that the gradient is that of their sum, and a learning rate means the same as elsewhere.
//
// The package must not know of any engine by name, of text, or of algorithms.
package client
