// Package recording makes many calls through an LLM proxy, with backends that fail in every way and agents that leave, while
// the store behind it is killed again and again, and the proxy, too. Whatever happens, a flush that succeeds means that the
// store has exactly one record of each call of the attempt.
//
// It has no code of its own.
package recording
