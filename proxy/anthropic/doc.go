// Package anthropic has the wire form of Anthropic's Messages, as functions on bytes and
// events. It turns streams into whole messages, and translates requests, replies
// and streams to and from OpenAI's Chat Completions.
//
//	chat, err := anthropic.ToChat(body, anthropic.ChatOptions{})
//	var reply anthropic.ChatReply
//	message, err := reply.Reply(nil, completion)
//
// A translation keeps the meaning or is refused: if the other API cannot express a field,
// the error is an [openai.FieldError] that names it. Texts, arguments, schemas and numbers
// are copied byte for byte. Streams are translated event by event, without delay.
//
// The package must not know HTTP connections, recording, or who calls it.
package anthropic
