// Package recording makes many calls through an LLM proxy, with backends that fail in every way and agents that leave, while
// the store and the proxy are killed again and again. Whatever happens, after a successful flush the store must have exactly
// one record of each call of the attempt.
//
// It has no code of its own.
package recording
