// Package tokenizer reads the tokenizer.json of a real model and turns text into exactly the ids that the model was trained
// with, and back:
//
//	tok, err := tokenizer.Load(data)
//	ids, err := tok.Encode("a text")
//	text := tok.Decode(ids)
//
// It knows byte-pair encoding over bytes (Qwen, Llama 3, DeepSeek) and over characters with bytes to fall back on (Gemma),
// with the normalizers, splits and added tokens of these models. Load refuses by name whatever else a file asks for: a
// tokenizer that is almost right trains on wrong tokens.
//
// The reference, whose ids and texts it reproduces, is Hugging Face's library tokenizers with add_special_tokens=False: the
// tokens that a post-processor puts around a text, such as the beginning of sequence, are left to the chat template.
//
// Byte-pair encoding follows Sennrich, Haddow and Birch, "Neural Machine Translation of Rare Words with Subword Units"
// (2016): of all adjacent pairs in a word, the one that was learnt first is merged first.
//
// The package must not know what a chat, a template or a model is.
package tokenizer
