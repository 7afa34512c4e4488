// Package trainer wires a training run: an algorithm, an agent, a store, the
// runners, an LLM proxy if there is one, and the strategy that decides which of
// them live in which process.
//
// It is the only package that sees all of them, and nothing but main packages
// imports it. It must not know how any of its parts works.
package trainer
