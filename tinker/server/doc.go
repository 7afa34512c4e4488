// Package server serves any engine, a tinker.Service, over the Tinker protocol: [Server] is an http.Handler.
//
// A submit runs once, however often it is sent with the same ids and body, and the calls of a model run in the
// order of their submits. Results are kept for repeated reads, up to a number.
//
// The package must not know how an engine works, or what its tokens mean.
package server
