package record

import "github.com/agl-go/agl/proxy/openai"

// ChatMessages calls yield with each chat message that a member of a request holds: its messages, prompt, input, system text
// or instructions. It reports false for a member that holds none. The value must be valid JSON.
func ChatMessages(f Form, name string, value []byte, yield func(message []byte)) bool {
	return messagesOf(f, name, value, yield)
}

// ChatChoices returns the choices of a reply, which must be a JSON object, as those of a chat completion: message,
// finish_reason, token_ids, prompt_token_ids and logprobs, as far as the choices have them.
func ChatChoices(f Form, reply []byte) [][]byte {
	var list []choice
	var ids [][]byte // of the replies
	var prompt []byte
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
