// Package chat serves OpenAI Chat Completions over any token sampler: a [Renderer] turns messages into
// prompt ids, a [tinker.SamplingClient] draws tokens, and a [Tokenizer] turns them into text. Agents thus
// reach the model under training as they reach any model, and whoever records them (the proxy) gets the exact
// token ids and log-probabilities, in the form in which vLLM's OpenAI server gives them.
//
// The package must not know what serves the samples, what records the calls, or anything about rollouts,
// rewards or the store.
package chat
