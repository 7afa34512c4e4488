package record

import "github.com/agl-go/agl/proxy/openai"

// ChatChoices returns the choices of a reply, which must be a JSON object, in the form of a chat completion. Each is an object
// with message, finish_reason, token_ids, prompt_token_ids and logprobs; what the reply lacks is absent.
func ChatChoices(f Form, reply []byte) [][]byte {
	var list []choice
	var ids [][]byte  // token ids of each choice
	var prompt []byte // token ids
	var members []openai.Member
	switch f {
	case Responses, Messages:
		openai.Members(reply, func(name, value []byte) { members = append(members, openai.Member{Name: name, Value: value}) })
		if list = responsesChoices(members); f == Messages {
			list = messagesChoices(members)
		}
		ids = append(ids, member(reply, "token_ids"))
	default:
		for _, one := range openai.ParseReply(reply).Choices {
			var c choice
			var sources tokenSources
			ids = append(ids, c.read(one.Members, one.Logprobs, &sources))
			if prompt == nil {
				prompt = sources.prompt
			}
			list = append(list, c)
		}
	}
	choices := make([][]byte, len(list))
	for i, c := range list {
		var finish, logprobs []byte
		if len(c.finish) > 0 {
			finish = c.finish[0].Value
		}
		if c.logprobs != nil || c.refusal != nil {
			logprobs = object(pair{"content", c.logprobs}, pair{"refusal", c.refusal})
		}
		choices[i] = object(pair{"message", c.message}, pair{"finish_reason", finish}, pair{"token_ids", ids[i]}, pair{"prompt_token_ids", prompt}, pair{"logprobs", logprobs})
	}
	return choices
}
