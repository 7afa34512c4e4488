// Package openai holds the wire forms of OpenAI's Chat Completions, Completions
// and Responses as functions on bytes: what a proxy must read of a request,
// which bytes of a reply an agent did not ask for, how a stream is cut into
// events and put together again or made of a whole reply, and how Responses are
// translated for servers that have Chat Completions only. It knows nothing of
// HTTP, of recording, or of who asks.
//
// What passes in its own form is edited by position: bytes that are not named
// stay as they were, in their order, with their spelling. Input that is not JSON
// is left alone; nothing panics.
package openai
