// Package tokenizer reads the tokenizer.json of a real model and turns text into exactly the ids that the
// model was trained with, and back: byte-pair encoding over bytes (Qwen, Llama 3, DeepSeek) or over characters
// with bytes to fall back on (Gemma), with the normalizers, splits and added tokens that these models use.
// Whatever else a file asks for is refused by name when it is loaded, because a tokenizer that is almost right
// trains on wrong tokens.
//
// Byte-pair encoding follows Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with
// Subword Units" (2016): of all adjacent pairs in a word, the one that was learnt first is merged first.
//
// The package must not know what a chat, a template or a model is.
package tokenizer
