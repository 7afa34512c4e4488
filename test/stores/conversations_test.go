package stores_test

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/proxy/record"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/rest/server"
	"github.com/agl-go/agl/store"
)

var update = flag.Bool("update", false, "rewrite the golden files")

// talk is an agent's side of a conversation, and the records of its calls.
type talk struct {
	messages []string // JSON
	ids      []string // token ids of the prompt
	tools    string   // JSON
	previous *record.Tokens
	calls    []*record.Made
	said     int
}

// text returns the next text: some words that occur nowhere else.
func (c *talk) text() string {
	c.said++
	var b strings.Builder
	for i := range 25 {
		fmt.Fprintf(&b, "word-%d-%d ", c.said, i)
	}
	return b.String()
}

func (c *talk) say(role, content string) {
	c.messages = append(c.messages, fmt.Sprintf(`{"role":%q,"content":%s}`, role, content))
	for i := range 20 {
		c.ids = append(c.ids, strconv.Itoa(1000*c.said+i))
	}
}

func (c *talk) request() []byte {
	body := `{"model":"m","messages":[` + strings.Join(c.messages, ",") + `],"temperature":1`
	if c.tools != "" {
		body += `,"tools":` + c.tools
	}
	return []byte(body + `}`)
}

// reply returns a reply with some choices. The first one becomes part of the history.
func (c *talk) reply(choices int) []byte {
	list := make([]string, choices)
	ids := make([]string, choices)
	for i := range list {
		ids[i] = fmt.Sprintf("%d,%d", 500_000+10*c.said+i, i)
		list[i] = fmt.Sprintf(`{"index":%d,"message":{"role":"assistant","content":%q},"logprobs":{"content":[{"token":"w","logprob":-0.5,"bytes":null,"top_logprobs":[]}]},"finish_reason":"stop","token_ids":[%s]}`, i, c.text(), ids[i])
	}
	reply := fmt.Sprintf(`{"id":"chatcmpl-%d","object":"chat.completion","created":1700000000,"model":"m","choices":[%s],"prompt_token_ids":[%s],"usage":{"prompt_tokens":%d,"completion_tokens":2,"total_tokens":%d}}`,
		len(c.calls), strings.Join(list, ","), strings.Join(c.ids, ","), len(c.ids), len(c.ids)+2)
	c.ids = append(c.ids, strings.Split(ids[0], ",")...)
	return []byte(reply)
}

// record records a call with the current request.
func (c *talk) record(fill func(in *record.Input)) {
	n := len(c.calls) + 1
	now := time.Unix(1700000000+int64(n), 0)
	in := &record.Input{
		RolloutID: rolloutID, AttemptID: attemptID, Method: http.MethodPost, Path: "/chat/completions", Model: "m", Form: record.Chat, Request: c.request(),
		Status: http.StatusOK, Delivered: true, Backend: "http://backend/v1", Version: "v1",
		Start: now, Sent: now, FirstByte: now, LastByte: now.Add(time.Second), End: now.Add(time.Second),
	}
	fill(in)
	at := &record.Position{SequenceID: int64(n), Name: strconv.Itoa(n), Previous: c.previous, IDs: record.SpanIDs{Trace: fmt.Sprintf("%032x", n)}}
	for i := range at.IDs.Spans {
		at.IDs.Spans[i] = fmt.Sprintf("%08x%08x", n, i)
	}
	_, made := new(record.Builder).Append(nil, in, at)
	if made.Tokens != nil {
		c.previous = made.Tokens
	}
	c.calls = append(c.calls, &made)
}

// turn is a turn of a usual conversation.
func (c *talk) turn() {
	c.say("user", strconv.Quote(c.text()))
	c.record(func(in *record.Input) { in.Reply = c.reply(1) })
	c.say("assistant", strconv.Quote(c.text()))
}

// The ids in the golden files, in place of those that the stores assign.
const rolloutID, attemptID = "ro-golden", "at-golden"

const turns = 6

// conversations are the ways in which agents change their histories.
func conversations() map[string]func(c *talk) {
	return map[string]func(c *talk){
		"linear": func(c *talk) {
			for range 2 * turns {
				c.turn()
			}
		},
		"branched": func(c *talk) {
			for range turns / 2 {
				c.turn()
			}
			messages, ids := c.messages, c.ids
			for range 3 {
				c.messages, c.ids = slices.Clip(messages), slices.Clip(ids)
				c.turn()
				c.turn()
			}
		},
		"edited": func(c *talk) {
			for i := range turns {
				c.turn()
				c.messages[i] = fmt.Sprintf(`{"role":"user","content":%q}`, c.text())
				c.ids[20*i] = "7"
			}
		},
		"compacted": func(c *talk) {
			for range turns {
				c.turn()
			}
			c.messages, c.ids = c.messages[len(c.messages)-2:], c.ids[len(c.ids)-40:]
			c.say("system", strconv.Quote(c.text()))
			for range turns {
				c.turn()
			}
		},
		"tools": func(c *talk) {
			for i := range turns {
				c.tools = fmt.Sprintf(`[{"type":"function","function":{"name":"look-%d","description":%q,"parameters":{"type":"object"}}}]`, i/2, strings.Repeat("looks ", 20))
				c.turn()
				c.messages = append(c.messages, fmt.Sprintf(`{"role":"assistant","content":null,"tool_calls":[{"id":"c%d","type":"function","function":{"name":"look","arguments":"{\"at\":\"sky\"}"}}]}`, i))
				c.messages = append(c.messages, fmt.Sprintf(`{"role":"tool","tool_call_id":"c%d","content":%q}`, i, c.text()))
			}
		},
		"images": func(c *talk) {
			for i := range turns {
				c.say("user", fmt.Sprintf(`[{"type":"text","text":%q},{"type":"image_url","image_url":{"url":"data:image/png;base64,%s"}}]`, c.text(), strings.Repeat(strconv.Itoa(i), 200)))
				c.turn()
			}
		},
		"choices": func(c *talk) {
			for range turns {
				c.say("user", strconv.Quote(c.text()))
				c.record(func(in *record.Input) { in.Reply = c.reply(3) })
			}
		},
		"streams": func(c *talk) {
			for i := range turns {
				c.say("user", strconv.Quote(c.text()))
				c.record(func(in *record.Input) {
					reply := &openai.Accumulator{}
					for n, word := range strings.Fields(c.text()) {
						chunk := fmt.Sprintf(`{"id":"chatcmpl-%d","object":"chat.completion.chunk","model":"m","prompt_token_ids":[%s],"choices":[{"index":0,"delta":{"content":%q},"logprobs":{"content":[{"token":%q,"logprob":-0.25,"bytes":null,"top_logprobs":[]}]},"finish_reason":null,"token_ids":[%d]}]}`,
							i, strings.Join(c.ids, ","), word, word, n)
						reply.Add([]byte(chunk))
					}
					reply.Add([]byte(`{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}`))
					if i%3 < 2 { // the third breaks off
						reply.Add([]byte("[DONE]"))
					}
					in.Stream, in.Streamed = true, reply
				})
			}
		},
		"failed": func(c *talk) {
			for i := range turns {
				c.turn()
				c.say("user", strconv.Quote(c.text()))
				c.record(func(in *record.Input) {
					switch i % 3 {
					case 0:
						in.Status, in.Reply = http.StatusBadRequest, []byte(`{"error":{"message":"the context is too long","type":"invalid_request_error"}}`)
					case 1:
						in.Status, in.Delivered = http.StatusBadGateway, false
						in.Fail(record.SourceProvider, "connection refused")
					default:
						in.Reply, in.Cut = []byte(`{"id":"cut","choices":[{"mess`), true
					}
				})
			}
		},
		"lost": func(c *talk) {
			for range 2 * turns {
				c.turn()
			}
			c.calls[turns] = nil
		},
	}
}

// shortRequests counts requests with spans as deltas of earlier ones.
type shortRequests struct {
	http.RoundTripper
	seen atomic.Int64
}

func (s *shortRequests) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Content-Type") == "application/vnd.agl.spans" {
		s.seen.Add(1)
	}
	return s.RoundTripper.RoundTrip(r)
}

// TestConversationsGolden checks that REST returns conversations byte for byte as in the golden
// files, which a version without deltas has written.
func TestConversationsGolden(t *testing.T) {
	t.Parallel()
	for kind, dsn := range map[string]func(t *testing.T) string{
		"memory":   func(*testing.T) string { return "memory:" },
		"sqlite":   func(t *testing.T) string { t.Helper(); return "sqlite:" + filepath.Join(t.TempDir(), "agl.db") },
		"postgres": func(t *testing.T) string { t.Helper(); return database.Database(t) },
	} {
		for name, hold := range conversations() {
			t.Run(kind+"/"+name, func(t *testing.T) {
				t.Parallel()
				c := &talk{}
				hold(c)
				got := returned(t, dsn(t), c)
				path := filepath.Join("testdata", "conversations", name+".json")
				if *update {
					if err := os.WriteFile(path, got, 0o600); err != nil {
						t.Fatal(err)
					}
				}
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				if !bytes.Equal(got, want) {
					at := 0
					for at < min(len(got), len(want)) && got[at] == want[at] {
						at++
					}
					t.Errorf("%d bytes, want %d; from byte %d on\n%.300s\nwant\n%.300s", len(got), len(want), at, got[at:], want[at:])
				}
			})
		}
	}
}

// returned sends the records of a conversation call by call, and returns them as REST does, with the
// golden ids.
func returned(t *testing.T, dsn string, c *talk) []byte {
	t.Helper()
	s, err := store.Open(t.Context(), dsn, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	api, err := server.New(server.Config{Store: s})
	if err != nil {
		t.Fatal(err)
	}
	web := httptest.NewServer(api)
	defer web.Close()
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	short := &shortRequests{RoundTripper: transport}
	remote, err := client.New(client.Config{URL: web.URL, Transport: short, ShortenFrom: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer remote.Close()
	r, err := s.StartRollout(t.Context(), agl.StartRolloutParams{})
	if err != nil {
		t.Fatal(err)
	}
	own := strings.NewReplacer(rolloutID, r.RolloutID, attemptID, r.Attempt.AttemptID)
	for _, made := range c.calls {
		if made == nil {
			continue
		}
		spans := make([]jsontext.Value, len(made.Spans))
		for i, document := range made.Spans {
			spans[i] = jsontext.Value(own.Replace(string(document)))
		}
		if _, err := remote.AddSpansJSON(t.Context(), agl.AddSpansJSONParams{Spans: spans}); err != nil {
			t.Fatal(err)
		}
	}
	if short.seen.Load() == 0 && !*update {
		t.Error("no spans were sent as what they add to earlier ones")
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, web.URL+"/v1/agl/spans?rollout_id="+r.RolloutID, nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil || answer.StatusCode != http.StatusOK {
		t.Fatalf("%d %.300s, %v", answer.StatusCode, body, err)
	}
	golden := strings.NewReplacer(r.RolloutID, rolloutID, r.Attempt.AttemptID, attemptID)
	return []byte(golden.Replace(string(body)))
}
