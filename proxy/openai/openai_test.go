package openai_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/agl-go/agl/proxy/openai"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

func TestVisible(t *testing.T) {
	t.Parallel()
	both := openai.Hide{TokenIDs: true, Logprobs: true}
	for _, tt := range []struct {
		name     string
		hide     openai.Hide
		in, want string
	}{
		{"nothing there", both, `{"id":"a", "choices":[{"index":0}]}`, `{"id":"a", "choices":[{"index":0}]}`},
		{"last members", both, `{"a":1,"choices":[{"index":0,"token_ids":[1,2]}],"prompt_token_ids":[3]}`, `{"a":1,"choices":[{"index":0}]}`},
		{"first members", both, `{"prompt_token_ids":[3], "a":1,"choices":[{"token_ids":[1],"index":0}]}`, `{"a":1,"choices":[{"index":0}]}`},
		{"only members", both, `{"prompt_token_ids":[3]}`, `{}`},
		{"only members, spaced", both, "{ \"prompt_token_ids\" : [3] , \"response_token_ids\":[[1]] }", "{  }"},
		{"several in a row", both, `{"x":1,"prompt_token_ids":[3],"response_token_ids":[[1]],"y":2}`, `{"x":1,"y":2}`},
		{"first, middle and last", both, `{"prompt_token_ids":[3],"x":1,"response_token_ids":[],"y":2,"prompt_token_ids":null}`, `{"x":1,"y":2}`},
		{"log-probabilities become null", both, `{"choices":[{"logprobs":{"content":[{"token":"}"}]},"index":0}, {"logprobs":null}]}`, `{"choices":[{"logprobs":null,"index":0}, {"logprobs":null}]}`},
		{"ids asked for", openai.Hide{Logprobs: true}, `{"choices":[{"logprobs":{},"token_ids":[1]}],"prompt_token_ids":[3]}`, `{"choices":[{"logprobs":null,"token_ids":[1]}],"prompt_token_ids":[3]}`},
		{"log-probabilities asked for", openai.Hide{TokenIDs: true}, `{"choices":[{"logprobs":{},"token_ids":[1]}],"prompt_token_ids":[3]}`, `{"choices":[{"logprobs":{}}]}`},
		{"all asked for", openai.Hide{}, `{"choices":[{"logprobs":{},"token_ids":[1]}]}`, `{"choices":[{"logprobs":{},"token_ids":[1]}]}`},
		{"same names deeper", both, `{"choices":[{"message":{"token_ids":[1],"logprobs":{}}}],"x":{"prompt_token_ids":[1]}}`, `{"choices":[{"message":{"token_ids":[1],"logprobs":{}}}],"x":{"prompt_token_ids":[1]}}`},
		{"names in text", both, `{"choices":[{"message":{"content":"\"token_ids\":[1],"}}]}`, `{"choices":[{"message":{"content":"\"token_ids\":[1],"}}]}`},
		{"cut off", both, `{"prompt_token_ids":[3],"choices":[{"tok`, `{"prompt_token_ids":[3],"choices":[{"tok`},
		{"not an object", both, `[DONE]`, `[DONE]`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := string(bytes.Join(tt.hide.Visible([]byte(tt.in)), nil)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestAppendVisibleEvent(t *testing.T) {
	t.Parallel()
	hide := openai.Hide{TokenIDs: true, Logprobs: true}
	for _, tt := range []struct{ name, in, want, data string }{
		{"plain", "data: {\"prompt_token_ids\":[1],\"a\":1}\n\n", "data: {\"a\":1}\n\n", `{"prompt_token_ids":[1],"a":1}`},
		{"no space, CRLF", "data:{\"prompt_token_ids\":[1],\"a\":1}\r\n\r\n", "data:{\"a\":1}\r\n\r\n", `{"prompt_token_ids":[1],"a":1}`},
		{"other fields", "event: x\nid: 1\ndata: {\"prompt_token_ids\":[1]}\nretry: 5\n\n", "event: x\nid: 1\ndata: {}\nretry: 5\n\n", `{"prompt_token_ids":[1]}`},
		{"several lines", "data: {\"a\":1,\ndata: \"prompt_token_ids\":\n: note\ndata: [1],\"b\":2}\n\n", "data: {\"a\":1\ndata: \n: note\ndata: ,\"b\":2}\n\n", "{\"a\":1,\n\"prompt_token_ids\":\n[1],\"b\":2}"},
		{"null over lines", "data: {\"choices\":[{\"logprobs\":{\ndata: }}]}\n\n", "data: {\"choices\":[{\"logprobs\":null\ndata: }]}\n\n", "{\"choices\":[{\"logprobs\":{\n}}]}"},
		{"comment", ": ping\n\n", ": ping\n\n", ""},
		{"done", "data: [DONE]\n\n", "data: [DONE]\n\n", "[DONE]"},
		{"no end", "data: {\"prompt_token_ids\":[1]}", "data: {}", `{"prompt_token_ids":[1]}`},
		{"garbage", "data: {\"prompt_token_ids\":[1\n\n", "data: {\"prompt_token_ids\":[1\n\n", `{"prompt_token_ids":[1`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var a openai.Accumulator
			out := hide.AppendVisibleEvent(nil, []byte(tt.in), &a)
			if string(out) != tt.want {
				t.Errorf("got  %q\nwant %q", out, tt.want)
			}
			if malformed := tt.name == "garbage"; (a.Malformed() == 1) != malformed {
				t.Errorf("%d malformed", a.Malformed())
			}
			if data := openai.Data([]byte(tt.in)); string(data) != tt.data {
				t.Errorf("data %q, want %q", data, tt.data)
			}
		})
	}
}

func TestRequest(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, in  string
		model     string
		ask       bool
		want      string
		hide      openai.Hide
		streaming bool
	}{
		{"asked for", `{"model":"m","x":[1, 2]}`, "m", true, `{"return_token_ids":true,"logprobs":true,"model":"m","x":[1, 2]}`, openai.Hide{TokenIDs: true, Logprobs: true}, false},
		{"renamed", ` { "model" : "m" , "stream":true}`, `b"`, false, ` { "model" : "b\"" , "stream":true}`, openai.Hide{TokenIDs: true, Logprobs: true, Usage: true}, true},
		{"false turned", `{"logprobs":false,"return_token_ids":null,"model":"m"}`, "b", true, `{"logprobs":true,"return_token_ids":true,"model":"b"}`, openai.Hide{TokenIDs: true, Logprobs: true}, false},
		{"asked by the agent", `{"logprobs":true,"return_token_ids":true,"model":"m"}`, "m", true, `{"logprobs":true,"return_token_ids":true,"model":"m"}`, openai.Hide{}, false},
		{"not to be asked", `{"model":"m"}`, "m", false, `{"model":"m"}`, openai.Hide{TokenIDs: true, Logprobs: true}, false},
		{"escaped", `{"model":"\u006d"}`, "m", false, `{"model":"\u006d"}`, openai.Hide{TokenIDs: true, Logprobs: true}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r, err := openai.ParseRequest([]byte(tt.in))
			if err != nil {
				t.Fatal(err)
			}
			if r.Model != "m" || r.Hide != tt.hide || r.Stream != tt.streaming {
				t.Errorf("parsed %+v", r)
			}
			if got := string(bytes.Join(r.Body([]byte(tt.in), tt.model, openai.Ask{TokenIDs: tt.ask}), nil)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
	for in, want := range map[string]error{
		``: openai.ErrNotObject, `[]`: openai.ErrNotObject, `{"model":"m"`: openai.ErrNotObject, `{"model" "m"}`: openai.ErrNotObject,
		`{}`: openai.ErrNoModel, `{"model":3}`: openai.ErrNoModel, `{"model":null}`: openai.ErrNoModel, `{"MODEL":"m"}`: openai.ErrNoModel,
		`{"model":"m","model":"n"}`: openai.ErrTwoModels, `{"model":"m","mod\u0065l":"n"}`: openai.ErrTwoModels, `{"model":"m","Model":"n"}`: openai.ErrTwoModels, `{"MODEL":"n","model":"m"}`: openai.ErrTwoModels,
		`{"model":"m","input":[` + strings.Repeat("{},", openai.MaxParts-2) + `{}]}`: nil, `{"model":"m","input":"` + strings.Repeat("[{", openai.MaxParts) + `"}`: nil,
		`{"model":"m","input":[` + strings.Repeat("{},", openai.MaxParts-1) + `[]]}`: openai.ErrTooMany, `{"model":"m","input":[` + strings.Repeat("{},", openai.MaxParts) + `0],"x":tru}`: openai.ErrTooMany,
		`{"model":"m","input":[` + strings.Repeat("null,", openai.MaxParts) + `0]}`: openai.ErrTooMany, `{"model":"m","input":[` + strings.Repeat(`"",`, openai.MaxParts) + `0]}`: openai.ErrTooMany,
		`{"model":"m","prompt":[` + strings.Repeat("12,", openai.MaxParts) + `0]}`: nil,
	} {
		if _, err := openai.ParseRequest([]byte(in)); !errors.Is(err, want) {
			t.Errorf("%.1000s: got %v, want %v", in, err, want)
		}
	}
}

func TestAccumulator(t *testing.T) {
	t.Parallel()
	var a openai.Accumulator
	for _, data := range []string{
		`{"id":"x","object":"chat.completion.chunk","usage":null,"choices":[{"index":1,"delta":{"role":"assistant","content":""},"finish_reason":null}],"prompt_token_ids":[1,2]}`,
		`{"id":"x","object":"chat.completion.chunk","choices":[{"index":1,"delta":{"role":"assistant","content":"\ud83d"},"token_ids":[3],"logprobs":{"content":[{"logprob":-1}]}}]}`,
		`{"id":"x","choices":[{"index":1,"delta":{"content":"\ude00","thinking":{"n":1}},"token_ids":[],"logprobs":{"content":[]}}]}`,
		`nonsense`,
		`{"id":"x","choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","type":"function","function":{"name":"f","arguments":""}},{"index":1,"id":"d"}]}}]}`,
		`{"id":"x","choices":[{"delta":{"tool_calls":[{"index":0,"id":"c","function":{"arguments":"{\"a\":"}}]}}]}`,
		`{"id":"x","choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]},"finish_reason":"tool_calls"}]}`,
		`{"id":"x","choices":[{"index":1,"delta":{},"token_ids":[4, 5],"logprobs":{"content":[{"logprob":-2}],"refusal":null},"finish_reason":"stop"}]}`,
		`{"id":"x","choices":[],"usage":{"total_tokens":9},"extra":[true]}`,
		`[DONE]`,
	} {
		a.Add([]byte(data))
	}
	const want = `{"id":"x","object":"chat.completion","prompt_token_ids":[1,2],"usage":{"total_tokens":9},"extra":[true],"choices":[` +
		`{"index":0,"message":{"tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{\"a\":1}"}},{"id":"d","function":{}}]},"finish_reason":"tool_calls"},` +
		`{"index":1,"message":{"role":"assistant","thinking":{"n":1},"content":"\ud83d\ude00"},"logprobs":{"content":[{"logprob":-1},{"logprob":-2}]},"finish_reason":"stop","token_ids":[3,4, 5]}]}`
	if diff := cmp.Diff(want, string(a.AppendJSON(nil))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if a.Malformed() != 1 {
		t.Errorf("%d malformed, want 1", a.Malformed())
	}
}

// Calls of one message that have no index, as in whole messages, are not joined.
func TestAccumulateCallsWithoutIndex(t *testing.T) {
	t.Parallel()
	const calls = `"tool_calls":[{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"g","arguments":"{}"}}]`
	for _, member := range []string{"delta", "message"} {
		var a openai.Accumulator
		a.Add([]byte(`{"choices":[{"index":0,"` + member + `":{` + calls + `},"finish_reason":"tool_calls"}]}`))
		want := `{"choices":[{"index":0,"message":{` + calls + `},"finish_reason":"tool_calls"}]}`
		if diff := cmp.Diff(want, string(a.AppendJSON(nil))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", member, diff)
		}
	}
}

// Some backends give all calls of a message the index 0, and some give each delta of a call an id of its own.
func TestAccumulateCallsOfOneIndex(t *testing.T) {
	t.Parallel()
	delta := func(call string) string {
		return `{"choices":[{"index":0,"delta":{"tool_calls":[{"index":0,` + call + `}]}}]}`
	}
	for name, tt := range map[string]struct{ first, second, want string }{
		"two calls": {
			`"id":"a","function":{"name":"f","arguments":"{}"}`, `"id":"b","function":{"name":"f","arguments":"{\"x\":1}"}`,
			`{"id":"a","function":{"name":"f","arguments":"{}"}},{"id":"b","function":{"name":"f","arguments":"{\"x\":1}"}}`,
		},
		"an id for each delta": {
			`"id":"a","function":{"name":"f","arguments":"{"}`, `"id":"b","function":{"arguments":"}"}`,
			`{"id":"b","function":{"name":"f","arguments":"{}"}}`,
		},
		"the same call": {
			`"id":"a","function":{"name":"f","arguments":"{"}`, `"id":"a","function":{"arguments":"}"}`,
			`{"id":"a","function":{"name":"f","arguments":"{}"}}`,
		},
	} {
		var a openai.Accumulator
		a.Add([]byte(delta(tt.first)))
		a.Add([]byte(delta(tt.second)))
		want := `{"choices":[{"index":0,"message":{"tool_calls":[` + tt.want + `]}}]}`
		if diff := cmp.Diff(want, string(a.AppendJSON(nil))); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}

// cutUp feeds a stream in pieces and returns its events.
func cutUp(stream []byte, sizes func() int) [][]byte {
	var e openai.Events
	var events [][]byte
	for len(stream) > 0 {
		n := min(max(sizes(), 1), len(stream))
		e.Write(stream[:n])
		stream = stream[n:]
		for event := e.Next(); event != nil; event = e.Next() {
			events = append(events, bytes.Clone(event))
		}
	}
	if rest := e.Rest(); len(rest) > 0 {
		events = append(events, bytes.Clone(rest))
	}
	return events
}

// However a stream is cut, its bytes and its data are the same, and each event
// of a stream with line feeds is the same too.
func TestParseReply(t *testing.T) {
	t.Parallel()
	members := func(pairs ...string) (list []openai.Member) {
		for i := 0; i < len(pairs); i += 2 {
			list = append(list, openai.Member{Name: []byte(pairs[i]), Value: []byte(pairs[i+1])})
		}
		return list
	}
	choices := `[ {"a\"b":"a long \\\" text, \\\\", "logprobs": {"content":[{"token":"]"}],"refusal":null} , "n":1},{"logprobs":null},7,{}]`
	for raw, want := range map[string]openai.Reply{
		` {"id":"x","choices":` + choices + `,"usage":{}}`: {
			Members: members("id", `"x"`, "choices", choices, "usage", "{}"),
			Choices: []openai.Choice{
				{
					Members:  members(`a\"b`, `"a long \\\" text, \\\\"`, "logprobs", `{"content":[{"token":"]"}],"refusal":null}`, "n", "1"),
					Logprobs: members("content", `[{"token":"]"}]`, "refusal", "null"),
				},
				{Members: members("logprobs", "null")},
				{}, {},
			},
		},
		`{"choices":[1],"choices":[]}`: {Members: members("choices", "[1]", "choices", "[]")},
		`{"choices":null}`:             {Members: members("choices", "null")},
		`{"choices":{"a":[]},"b":1}`:   {Members: members("choices", `{"a":[]}`, "b", "1")},
		`{}`:                           {},
	} {
		if diff := cmp.Diff(want, openai.ParseReply([]byte(raw)), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", raw, diff)
		}
	}
}

func TestEventsAnyCut(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		parts := rapid.SliceOf(rapid.SampledFrom([]string{"data: {\"a\":1}", "data:x", "event: e", ":", "é😀", "\n", "\n\n", "\r\n", "\r\n\r\n", "\r", " "})).Draw(t, "parts")
		stream := []byte(strings.Join(parts, ""))
		whole := cutUp(stream, func() int { return len(stream) })
		cut := cutUp(stream, func() int { return rapid.IntRange(1, 9).Draw(t, "size") })
		if got := bytes.Join(cut, nil); !bytes.Equal(got, stream) {
			t.Fatalf("got %q, want %q", got, stream)
		}
		if !bytes.Contains(stream, []byte("\r")) {
			if diff := cmp.Diff(whole, cut); diff != "" {
				t.Fatalf("events differ by how they are cut:\n%s", diff)
			}
		}
		datas := func(events [][]byte) []string {
			var all []string
			for _, e := range events {
				if d := openai.Data(e); d != nil {
					all = append(all, string(d))
				}
			}
			return all
		}
		if diff := cmp.Diff(datas(whole), datas(cut)); diff != "" {
			t.Fatalf("data differs by how the stream is cut:\n%s", diff)
		}
	})
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte("data: {\"a\":1}\n\ndata: [DONE]\n\n"), 3)
	f.Add([]byte("data: 1\r\ndata: 2\r\n\r\n\r\rdata:x"), 1)
	f.Fuzz(func(t *testing.T, stream []byte, size int) {
		if got := bytes.Join(cutUp(stream, func() int { return size%64 + 1 }), nil); !bytes.Equal(got, stream) {
			t.Fatalf("got %q, want %q", got, stream)
		}
	})
}

// FuzzReply: whatever a backend sends, hiding panics never and keeps JSON JSON,
// and a stream of valid chunks gives a valid completion.
func FuzzReply(f *testing.F) {
	f.Add([]byte(`{"id":"x","choices":[{"index":0,"delta":{"content":"a","tool_calls":[{"index":0,"function":{"arguments":"{}"}}]},"logprobs":{"content":[{}]},"token_ids":[1]}],"prompt_token_ids":[1]}`))
	f.Add([]byte(`{"prompt_token_ids":[3],"x":1,"response_token_ids":[],"y":2}`))
	f.Add([]byte(`{"choices":[{"token_ids":[`))
	f.Add([]byte(`{"model":"m","logprobs":false,"stream":true}`))
	f.Fuzz(func(t *testing.T, doc []byte) {
		options := jsontext.AllowDuplicateNames(true)
		valid := jsontext.Value(doc).IsValid(options)
		visible := bytes.Join(openai.Hide{TokenIDs: true, Logprobs: true}.Visible(doc), nil)
		if valid && !jsontext.Value(visible).IsValid(options) {
			t.Fatalf("%s became %s", doc, visible)
		}
		if jsontext.Value(doc).Kind() == '{' && valid {
			var members []openai.Member
			openai.Members(doc, func(name, value []byte) { members = append(members, openai.Member{Name: name, Value: value}) })
			if diff := cmp.Diff(members, openai.ParseReply(doc).Members, cmpopts.EquateEmpty()); diff != "" {
				t.Fatalf("%s (-members +parsed):\n%s", doc, diff)
			}
		}
		var a openai.Accumulator
		a.Add(doc)
		a.Add(doc)
		if out := a.AppendJSON(nil); valid && !jsontext.Value(out).IsValid(options) {
			t.Fatalf("%s accumulated to %s", doc, out)
		}
		r, err := openai.ParseRequest(doc)
		if err != nil {
			return
		}
		if out := bytes.Join(r.Body(doc, "other", openai.Ask{TokenIDs: true, Usage: true}), nil); valid && !jsontext.Value(out).IsValid(options) {
			t.Fatalf("%s became %s", doc, out)
		}
	})
}

// .NET's writers begin a stream with a byte order mark, which is no part of its first event.
func TestByteOrderMark(t *testing.T) {
	t.Parallel()
	var events openai.Events
	events.Write([]byte("\ufeffdata: {\"a\":1}\n\ndata: 2\n\n"))
	if got := openai.Data(events.Next()); string(got) != `{"a":1}` {
		t.Errorf("the first event has %q", got)
	}
	if got := openai.Data(events.Next()); string(got) != "2" {
		t.Errorf("the second event has %q", got)
	}
}
