// Package openai holds the wire form of OpenAI's Chat Completions as functions
// on bytes: what a proxy must read of a request, which bytes of a reply an
// agent did not ask for, how a stream is cut into events and put together
// again. It knows nothing of HTTP, of recording, or of who asks.
//
// Everything here edits by position: bytes that are not named stay as they
// were, in their order, with their spelling. Input that is not JSON is left
// alone; nothing panics.
package openai
