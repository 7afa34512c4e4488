// Package anthropic holds the wire form of Anthropic's Messages as functions on
// bytes and events: streams put together again, and translation to and from
// OpenAI's Chat Completions, requests, replies and streams. It knows nothing of
// HTTP, of recording, or of who asks.
//
// A translation keeps meaning or refuses: what the other side has no words for
// is an [openai.FieldError] that names the field. Texts, arguments, schemas and
// numbers are carried as they are spelled. Streams are translated event by
// event, and nothing is held back that could be sent.
package anthropic
