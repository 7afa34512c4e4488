// Package gateway serves the API of Agent-lightning v1.0 over an [agl.Store], so that
// its trainer, controllers and agents run unchanged with another URL.
//
//	g, err := gateway.New(gateway.Config{Store: engine, Model: "Qwen/Qwen2.5-7B-Instruct"})
//	if err := g.Start(ctx); err != nil { … }
//	defer g.Close()
//	http.ListenAndServe(":8080", g)
//
// A rollout of that API is a rollout of the store, an event is a span, and a rollout that the trainer deletes is only
// hidden from it. mapping.go translates between the two vocabularies; nothing else knows both. Everything is stored
// before a client learns of it, so a server can be killed at any time, and several servers can share a database.
//
// The package must not know the engine behind the store, nor the API under /v1/agl.
package gateway
