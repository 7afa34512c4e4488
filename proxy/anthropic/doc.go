// Package anthropic has the wire form of Anthropic's Messages, as functions on bytes and
// events. It turns streams into whole messages, and translates requests, replies
// and streams to and from OpenAI's Chat Completions.
//
//	chat, err := anthropic.ToChat(body, anthropic.ChatOptions{})
//	var reply anthropic.ChatReply
//	message, err := reply.Reply(nil, completion)
//
// A translation keeps the meaning or refuses: for what the other API cannot express
// the error is an [openai.FieldError] that names the field. Texts, arguments, schemas
// and numbers keep their spelling. Streams are translated event by event, and each
// event is sent as soon as it can be.
//
// The package must not know HTTP connections, recording, or who calls it.
package anthropic
