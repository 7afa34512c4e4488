// Package tokenizers compares the tokenizers and chat templates of real models with the real libraries: Python's tokenizers
// and transformers. The tests are behind the build tag tokenizers, because they fetch models; run them with make tokenizers.
package tokenizers
