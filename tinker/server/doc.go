// Package server serves an engine, any [tinker.Service], over the Tinker protocol, so that Tinker's own SDK and every other
// client of the protocol can train on it and sample from it. [Server] is an [http.Handler]:
//
//	s, err := server.New(server.Config{Service: engine})
//	http.ListenAndServe("127.0.0.1:4749", s)
//
// A submit runs once, however often it is sent with the same sequence id and body, and the calls of a model run in the
// order of their submits. Results are kept for repeated reads, within bounds.
//
// The package must not know how an engine works, or what its tokens mean.
package server
