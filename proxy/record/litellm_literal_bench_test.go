package record

import (
	"strings"
	"testing"
)

// BenchmarkQuote writes the log-probabilities of 100 tokens, and a text of 39 KB,
// into strings.
func BenchmarkQuote(b *testing.B) {
	const token = `{"token":" word","logprob":-0.5,"bytes":[32,119,111,114,100],"top_logprobs":[]},`
	for _, input := range []struct{ name, value string }{
		{"logprobs", "[" + strings.TrimSuffix(strings.Repeat(token, 100), ",") + "]"},
		{"text", `{"content":"` + strings.Repeat(`All happy families are alike.\n`, 1300) + `"}`},
	} {
		for name, appendTo := range map[string]func(dst, value []byte) []byte{"json": appendQuoted, "python": appendPython} {
			b.Run(input.name+"/"+name, func(b *testing.B) {
				value := []byte(input.value)
				dst := appendTo(nil, value)
				b.SetBytes(int64(len(value)))
				for b.Loop() {
					dst = appendTo(dst[:0], value)
				}
			})
		}
	}
}
