package exchange

import (
	"testing"
)

// Whatever a stream holds, and however it is cut, its tokens are the same and
// never negative.
func FuzzProgress(f *testing.F) {
	for _, seed := range []string{
		"data: {\"prompt_token_ids\":[1,2],\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"},\"token_ids\":[3,4]}]}\n\ndata: [DONE]\n\n",
		"data: {\"choices\":[],\"usage\":{\"prompt_tokens\":1,\"completion_tokens\":2}}\r\n\r\n: ping\n\n",
		"event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":4}}}\n\nevent: x\ndata: {\"type\":\"content_block_delta\"}\n\n",
		"data: {\"type\":\"response.output_text.delta\",\"delta\":\"a\"}\n\ndata: {\"type\":\"response.completed\",\"response\":{\"usage\":null}}\n\n",
		"data\n\ndata: {\"choices\":[1,null,{\"finish_reason\":\"stop\"}],\"type\":7}\n\n",
	} {
		f.Add([]byte(seed), uint8(3))
	}
	f.Fuzz(func(t *testing.T, stream []byte, cut uint8) {
		whole, cutUp := meter{stream: true, exact: true}, meter{stream: true, exact: true}
		whole.write(stream)
		for rest := stream; len(rest) > 0; {
			n := min(len(rest), int(cut)+1)
			cutUp.write(rest[:n])
			rest = rest[n:]
		}
		in, out := whole.running().Prompt, whole.running().Completion
		in2, out2 := cutUp.running().Prompt, cutUp.running().Completion
		if whole.count() != cutUp.count() {
			t.Errorf("%+v; in pieces %+v", whole.count(), cutUp.count())
		}
		if in != in2 || out != out2 || whole.more != cutUp.more || in < 0 || out < 0 {
			t.Errorf("%d and %d tokens, more %v; in pieces %d and %d, more %v", in, out, whole.more, in2, out2, cutUp.more)
		}
	})
}
