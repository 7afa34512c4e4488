// Package chat serves OpenAI Chat Completions over any token sampler, so that agents call the model in training like any
// other model. A [Renderer] turns messages into prompt ids, a [tinker.SamplingClient] samples tokens, and a [Tokenizer]
// turns them into text:
//
//	tok, err := chat.NewCharacters("")
//	s, err := chat.NewServer(chat.Config{Tokenizer: tok, Renderer: chat.NewRoleMarks(tok)})
//	s.SetModel("policy", chat.Model{Client: sampler, Version: "step-1"})
//	http.ListenAndServe("127.0.0.1:8000", s)
//
// On request, replies carry the exact token ids and log-probabilities, in the form of vLLM's OpenAI server. Training
// needs them: tokenizing the text again may give other tokens.
//
// [RoleMarks] is the format of tiny models; package pretrained has the formats of real ones.
//
// The package must not know which engine samples, who records the calls, or anything about rollouts, rewards or the store.
package chat
