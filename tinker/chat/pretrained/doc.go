// Package pretrained is the chat format of real models. It renders conversations with the template that a model was trained
// with, exactly as transformers does, turns them into the model's own tokens, and reads tool calls and reasoning out of
// its replies. A [Model] is made of the files that every model on Hugging Face comes with, and is a [chat.Renderer]:
//
//	model, err := pretrained.Open("models/Qwen3-0.6B", pretrained.Config{})
//	s, err := chat.NewServer(chat.Config{Tokenizer: model.Tokenizer(), Renderer: model})
//
// Agents speak OpenAI's form, in which the arguments of a call are text, and a message with nothing but calls has no
// content. Templates differ in what they need instead; loading a model renders a few conversations and finds out.
//
// The package must not know what samples the tokens or who asks for them.
package pretrained
