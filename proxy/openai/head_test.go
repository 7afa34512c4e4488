package openai

import (
	"strings"
	"testing"
)

// Chunks that begin alike are read in a shorter way, which must not show: not in
// what the agent gets, nor in the reply that they make.
func TestChunksThatBeginAlike(t *testing.T) {
	t.Parallel()
	const tail = `"choices":[{"index":0,"delta":{"content":"x"},"logprobs":{"content":[]},"token_ids":[1]}]`
	chunks := []string{
		`{"id":"c","prompt_token_ids":[7],` + tail + `}`, // hidden before the choices
		`{"id":"c","created":1,` + tail + `}`,
		`{"id":"c","created":1,` + tail + `}`,
		`{"id":"c","created":1,` + tail + `,"usage":{"n":1}}`,
		`{"id":"c","created":2,` + tail + `}`,
		`{"id":"c","created":1,` + tail + `}`, // as before, but not as the last one
		`{"id":"c","created":1,"choices":null}`,
		`{` + tail + `,"created":3}`,
		`{"id":"c","created":1,` + tail + `,"choices":[]}`,
		`{"id":"c","created":1,` + tail + `,"extra":true}`,
		`{"id":"c","created":1,`,
		`{"id":"c","created":1,` + tail,
	}
	hide := Hide{TokenIDs: true, Logprobs: true, Usage: true}
	var short Accumulator
	for i, chunk := range chunks {
		event := []byte("data: " + chunk + "\n\n")
		got := string(hide.AppendVisibleEvent(nil, event, &short))
		var alone Accumulator
		want := string(hide.AppendVisibleEvent(nil, event, &alone))
		if got != want {
			t.Errorf("chunk %d: %s, alone %s", i, got, want)
		}
	}
	reply := string(short.AppendJSON(nil))
	for _, want := range []string{`"created":1`, `"content":"xxxxxxxxx`, `"extra":true`, `"prompt_token_ids":[7]`, `"usage":{"n":1}`} {
		if !strings.Contains(reply, want) {
			t.Errorf("no %s in %s", want, reply)
		}
	}
	if short.Malformed() != 2 {
		t.Errorf("%d malformed events, want 2", short.Malformed())
	}
}
