package openai

import (
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// sameAsWalked takes events with and without the shape of those before them,
// which must not show: not in what the agent gets, nor in the reply that they
// make. It returns how many had a shape.
func sameAsWalked(t interface{ Fatalf(string, ...any) }, hide Hide, events []string) (shaped int) {
	var short, walked Accumulator
	for i, event := range events {
		if short.shape.matches(hide, []byte(event)) {
			shaped++
		}
		got := string(hide.AppendVisibleEvent(nil, []byte(event), &short))
		walked.shape.event = nil
		want := string(hide.AppendVisibleEvent(nil, []byte(event), &walked))
		if got != want {
			t.Fatalf("event %d, %q: got %q, want %q", i, event, got, want)
		}
	}
	got, want := string(short.AppendJSON(nil)), string(walked.AppendJSON(nil))
	if got != want || short.Malformed() != walked.Malformed() || short.Size() != walked.Size() {
		t.Fatalf("%q:\ngot  %s, %d malformed, size %d\nwant %s, %d malformed, size %d",
			events, got, short.Malformed(), short.Size(), want, walked.Malformed(), walked.Size())
	}
	return shaped
}

func TestShape(t *testing.T) {
	t.Parallel()
	all := Hide{TokenIDs: true, Logprobs: true, Usage: true}
	chunk := func(content, logprobs, ids string) string {
		return fmt.Sprintf("data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":%s},\"logprobs\":{\"content\":%s},\"token_ids\":%s}]}\n\n", content, logprobs, ids)
	}
	for _, tt := range []struct {
		name   string
		events []string
		shaped int
	}{
		{"alike", []string{chunk(`"a"`, `[{"token":"a"}]`, `[1]`), chunk(`" and \"b\""`, `[{"token":"]}"},{}]`, `[22,333]`), chunk(`""`, `[]`, `[]`)}, 2},
		{"another kind of value", []string{chunk(`"a"`, `[]`, `[1]`), chunk(`null`, `[]`, `[1]`), chunk(`"a"`, `null`, `[1]`), chunk(`"a"`, `[]`, `{}`)}, 0},
		{"another length", []string{chunk(`"a"`, `[]`, `[1]`), chunk(`"a"`, `[]`, `[1],"x":[2]`)}, 0},
		{"over lines", []string{chunk(`"a"`, `[]`, `[1]`), chunk(`"a"`, "[1,\ndata: 2]", `[1]`), chunk(`"a"`, "[1,\rdata: 2]", `[1]`)}, 0},
		{"cut off", []string{chunk(`"a"`, `[]`, `[1]`), chunk(`"a"`, `[]`, `[1]`)[:100], "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a"}, 0},
		{"tools", []string{
			"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"a\"}}],\"content\":\"x\"}}]}\n\n",
			"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":0,\"function\":{\"arguments\":\"a\"}}],\"content\":\"x\"}}]}\n\n",
		}, 0},
		{"a completion", []string{"data: {\"choices\":[{\"index\":0,\"text\":\"a\"}]}\n\n", "data: {\"choices\":[{\"index\":0,\"text\":\"bc\"}]}\n\n"}, 1},
		{"several choices", []string{
			"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a\"}},{\"index\":1,\"delta\":{\"content\":\"b\"}}]}\n\n",
			"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"c\"}},{\"index\":1,\"delta\":{\"content\":\"d\"}}]}\n\n",
		}, 1},
		{"something in between", []string{chunk(`"a"`, `[]`, `[1]`), ": ping\n\n", "data: {\n\n", chunk(`"a"`, `[]`, `[1]`), "data: [DONE]\n\n", chunk(`"a"`, `[]`, `[1]`)}, 1},
	} {
		if got := sameAsWalked(t, all, tt.events); got != tt.shaped {
			t.Errorf("%s: %d events with a shape, want %d", tt.name, got, tt.shaped)
		}
	}
}

// Whatever events are made of, in whatever order.
func TestShapeOfAnything(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		value := rapid.SampledFrom([]string{`"a"`, `"\\"b"`, `"]}"`, `""`, `null`, `[]`, `[1]`, `[1,22]`, "[1,\ndata: 2]", `[{"token":"\\n"}]`, `{"x":[1]}`, `true`, `"`, `[`})
		name := rapid.SampledFrom([]string{"content", "role", "reasoning", "tool_calls", "token_ids", "logprobs", "text", "index", "finish_reason", "delta", "refusal", "usage"})
		object := func(label string, values *rapid.Generator[string]) string {
			members := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
				return `"` + name.Draw(t, "name") + `":` + values.Draw(t, "value")
			}), 0, 4).Draw(t, label)
			return "{" + strings.Join(members, ",") + "}"
		}
		kinds := rapid.IntRange(1, 3).Draw(t, "kinds")
		var events []string
		for range kinds {
			inner := rapid.OneOf(value, rapid.Just(object("delta", value)))
			event := "data: {\"choices\":[" + object("choice", inner) + "]," + object("rest", value)[1:] + "\n\n"
			events = append(events, event)
		}
		stream := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) string {
			event := rapid.SampledFrom(events).Draw(t, "event")
			return strings.Replace(event, value.Draw(t, "old"), value.Draw(t, "new"), 1)
		}), 1, 12).Draw(t, "stream")
		sameAsWalked(t, Hide{TokenIDs: rapid.Bool().Draw(t, "ids"), Logprobs: true}, stream)
	})
}

// Chunks that begin alike.
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
