// Package proxy is the gateway between agents and the models that they call. It
// serves OpenAI's Chat Completions, Completions and Responses and Anthropic's
// Messages, from backends of either family, and translates where agent and backend
// differ. It asks the inference engine for the token ids and log-probabilities that
// training needs, hides them from agents that did not ask for them, and records every
// call of an attempt as spans.
//
//	p, err := proxy.New(proxy.Config{Models: models, Spans: store})
//	p.Start(ctx)
//	defer p.Close(ctx)
//	http.ListenAndServe(addr, p)
//
// An agent calls it under /rollout/{id}/attempt/{id}/…, which names the attempt. Calls
// without that prefix are not recorded. Bytes are forwarded unchanged, except for the
// members that package openai names. A call is never retried once a byte of the reply
// has reached the agent.
//
// Recording never breaks a reply: records are ordered, built and stored in the
// background, and [Proxy.Flush] waits for them. Of a reply it delays only the end,
// until the call has its sequence id, and for five seconds at most. A reward that follows
// the reply therefore also follows the call.
//
// The work is done in sub-packages: upstream sends calls to backends, exchange serves
// one call from request to reply, quota limits the calls of rollouts, capture keeps
// records until they are stored (spool on disk), record turns calls into spans, session
// turns the traffic of live programs into rollouts, extract derives their rewards, and
// admin serves the routes for operators. openai and anthropic have the wire forms,
// configfile reads the file of settings, and proxytest plays a model.
//
// The package must not know which store it writes to through [Spans], nor which trainer
// uses it: the owner of the proxy sets its list of models.
package proxy
