// Package openai has the wire forms of OpenAI's Chat Completions, Completions and
// Responses, as functions on bytes. It parses the members of a request that a proxy
// needs, hides the members of a reply that an agent did not ask for, splits streams into
// events, turns streams into whole replies and back, and translates Responses for servers
// that have Chat Completions only.
//
//	request, err := openai.ParseRequest(body)
//	sent := request.Body(body, "qwen", openai.Ask{TokenIDs: true})
//	visible := request.Hide.Visible(reply)
//
// Documents that keep their form are edited by byte position: all other bytes stay as they
// are. Input that is not JSON is returned unchanged. No input makes a function panic.
//
// The package must not know HTTP connections, recording, or who calls it.
package openai
