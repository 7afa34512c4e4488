// Package proxy is the gateway between agents and the models that they call.
// It speaks OpenAI's Chat Completions, Completions and Responses and Anthropic's
// Messages on both sides, translating where the two differ; asks the inference
// engine for the token ids and log-probabilities that training needs, hides them
// from agents that did not ask, and records every call of an attempt as spans.
//
// An agent calls it under /rollout/{id}/attempt/{id}/…, which says whose call
// it is; calls without that prefix pass unrecorded. Bytes are forwarded as they
// are except for the fields named in package openai. Recording never breaks a
// reply and holds up none of its bytes but the last: ordering, building and
// storing of records happen beside the calls, and [Proxy.Flush] tells when they
// are done. The last byte waits for the call's sequence id if that is late, half
// a second at most, so that a reward which follows the reply also follows the call.
//
// The package knows neither the store nor who trains: it writes through [Spans]
// and takes its list of models from whoever owns it. Nothing is retried once a
// byte has reached the agent.
package proxy
