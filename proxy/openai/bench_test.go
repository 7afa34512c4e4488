package openai

import (
	"fmt"
	"testing"
)

// BenchmarkStream takes a stream of 100 events apart, hides what the agent did
// not ask for and puts the reply together.
func BenchmarkStream(b *testing.B) {
	var stream []byte
	for i := range 100 {
		stream = fmt.Appendf(stream, "data: {\"id\":\"chatcmpl-0\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},"+
			"\"logprobs\":{\"content\":[{\"token\":\" word\",\"logprob\":-0.5,\"bytes\":[32,119],\"top_logprobs\":[]}]},\"finish_reason\":null,\"token_ids\":[%d]}]}\n\n", i)
	}
	hide := Hide{TokenIDs: true, Logprobs: true}
	var out []byte
	b.SetBytes(int64(len(stream)))
	b.ReportAllocs()
	for b.Loop() {
		var events Events
		var a Accumulator
		events.Write(stream)
		out = out[:0]
		for event := events.Next(); event != nil; event = events.Next() {
			out = hide.AppendVisibleEvent(out, event, &a)
		}
	}
}
