// Package pretrained is the chat format of real models: it renders conversations with the template that a model
// was trained with, as transformers does, turns them into the model's own tokens, and reads tool calls and
// reasoning out of its replies. Its [Model] is a chat.Renderer.
//
// Agents speak the OpenAI form, in which the arguments of a call are text and a message of calls alone has no
// content; templates differ in what they want to see instead. Load finds out by rendering a few conversations.
//
// The package must not know what samples the tokens or who asks for them.
package pretrained
