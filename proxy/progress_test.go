package proxy_test

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/proxy/record"
)

// events is a reply whose events are made as they are read, until there is none
// or the request is cancelled.
func events(r *http.Request, next func(i int) string) *http.Response {
	res := respond(200, http.Header{"Content-Type": {"text/event-stream"}}, "")
	res.ContentLength = -1
	i, left := 0, ""
	res.Body = io.NopCloser(reader(func(p []byte) (int, error) {
		if left == "" {
			if left = next(i); left == "" {
				return 0, io.EOF
			}
			i++
		}
		select {
		case <-r.Context().Done():
			return 0, r.Context().Err()
		case <-time.After(time.Second):
		}
		n := copy(p, left)
		left = left[n:]
		return n, nil
	}))
	return res
}

const messageStart = "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"x\",\"type\":\"message\",\"role\":\"assistant\",\"content\":[],\"model\":\"m\",\"usage\":{\"input_tokens\":4,\"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\n" +
	"event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n"

// runaway are streams that never end, by where they come from.
var runaway = map[string]func(i int) string{ //nolint:gochecknoglobals // a table of the test
	"ids": func(i int) string { // three in each event
		prompt := ""
		if i == 0 {
			prompt = `"prompt_token_ids":[1,2,3,4,5,6,7],`
		}
		return fmt.Sprintf("data: {\"id\":\"c\",%s\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a \"},\"finish_reason\":null,\"token_ids\":[%d,8,9]}]}\n\n", prompt, i)
	},
	"chat": func(int) string {
		return "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a \"},\"finish_reason\":null}]}\n\n"
	},
	"usage": func(i int) string { // of the stream so far, as some say it with each event, and with an empty reason
		return fmt.Sprintf("data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"a \"},\"finish_reason\":\"\"}],\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":%d}}\n\n", 3*(i+1))
	},
	"messages": func(i int) string {
		if i == 0 {
			return messageStart
		}
		return "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"a \"}}\n\n"
	},
	"responses": func(int) string {
		return "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":1,\"item_id\":\"x\",\"output_index\":0,\"content_index\":0,\"delta\":\"a \"}\n\n"
	},
}

// A stream is cancelled at its backend when its tokens pass what is left of its
// attempt's budget, as they are counted while it runs.
func TestBudgetOfTokensEndsRunningStream(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, path, backend string
		pieces, used        int // what the agent gets before it is over, and what that is in tokens
		prompt              int // estimated, where the backend does not count it
	}{
		{"ids", "/chat/completions", "ids", 5, 22, 0},
		{"ids, translated", "/messages", "ids", 5, 22, 0},
		{"events", "/chat/completions", "chat", 21, 21, 17},
		{"usage in each event", "/chat/completions", "usage", 5, 22, 0},
		{"messages", "/messages", "messages", 14, 21, 0},
		{"messages, translated", "/chat/completions", "messages", 14, 21, 0},
		{"responses", "/responses", "responses", 21, 21, 10},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				cancelled := make(chan struct{})
				p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
					go func() {
						<-r.Context().Done()
						close(cancelled)
					}()
					return events(r, runaway[tt.backend]), nil
				}, func(c *proxy.Config) {
					c.Control.Budget.Tokens = 20
					c.Models[0].TextOnly = tt.backend != "ids"
					if tt.backend == "messages" {
						c.Models[0].API = proxy.APIAnthropic
					}
				}, "backend")
				path := "/rollout/ro-1/attempt/at-1/v1" + tt.path
				body := streamed(hello)
				switch tt.path {
				case "/messages":
					body = streamed(askMessage)
				case "/responses":
					body = streamed(`{"model":"m","input":"hi"}`)
				}
				w, broken := cutOff(t, p, path, body)
				<-cancelled
				if got := strings.Count(w.Body.String(), `"a "`); !broken || got != tt.pieces {
					t.Errorf("broken off: %v, after %d pieces, want %d: %s", broken, got, tt.pieces, w.Body)
				}
				spent := func(used int) string { return fmt.Sprintf("budget of 20 tokens is spent: it has used %d", used) }
				if strings.Contains(tt.name, "translated") && !strings.Contains(w.Body.String(), spent(tt.used)) {
					t.Errorf("the agent is not told: %s", w.Body)
				}
				if w := ask(t.Context(), p, path, body, nil); w.Code != 429 || !strings.Contains(w.Body.String(), spent(tt.used+tt.prompt)) {
					t.Errorf("the next call: %d %s", w.Code, w.Body)
				}
				if err := p.Flush(t.Context(), nil); err != nil {
					t.Fatal(err)
				}
				calls := store.calls()
				if len(calls) != 2 {
					t.Fatalf("%d calls on record", len(calls))
				}
				for i, c := range calls {
					if attribute(t, &c, record.AttrOutcome) != "budget" || !strings.Contains(c.Status.Description.V, spent(tt.used+i*tt.prompt)) {
						t.Errorf("recorded as %s, %+v", c.Attributes, c.Status)
					}
				}
				closed(t, p)
			})
		})
	}
}

// cutOff makes a call and reports whether its connection was broken.
func cutOff(t *testing.T, p *proxy.Proxy, path, body string) (w *httptest.ResponseRecorder, broken bool) {
	t.Helper()
	w = httptest.NewRecorder()
	r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, path, strings.NewReader(body))
	return w, aborts(func() { p.ServeHTTP(w, r) })
}

// aborts reports whether a handler breaks its connection.
func aborts(serve func()) (broken bool) {
	defer func() {
		switch r := recover(); r {
		case nil:
		case http.ErrAbortHandler:
			broken = true
		default:
			panic(r)
		}
	}()
	serve()
	return false
}

// A stream that has said all is not cut, whatever its count at the end says; the
// next call is refused. Calls that run at once share what there is.
func TestBudgetOfTokensEndsNoCompleteStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for backend, last := range map[string][]string{
			"chat": {
				"data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\n",
				"data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":90,\"completion_tokens\":30}}\n\n",
				"data: [DONE]\n\n",
			},
			"messages": {
				"event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":300}}\n\n",
				"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
			},
			"responses": {
				"event: response.completed\ndata: {\"type\":\"response.completed\",\"response\":{\"id\":\"r\",\"usage\":{\"input_tokens\":90,\"output_tokens\":30}}}\n\n",
			},
		} {
			p, _ := plugged(t, func(r *http.Request) (*http.Response, error) {
				return events(r, func(i int) string {
					switch {
					case i < 3:
						return runaway[backend](i)
					case i-3 < len(last):
						return last[i-3]
					default:
						return ""
					}
				}), nil
			}, func(c *proxy.Config) {
				c.Control.Budget.Tokens = 100
				c.Models[0].TextOnly = true
				if backend == "messages" {
					c.Models[0].API = proxy.APIAnthropic
				}
			}, "backend")
			path, body := attemptPath, streamed(hello)
			switch backend {
			case "messages":
				path, body = messagesPath, streamed(askMessage)
			case "responses":
				path, body = "/rollout/ro-1/attempt/at-1/responses", streamed(`{"model":"m","input":"hi"}`)
			}
			if w, broken := cutOff(t, p, path, body); broken || w.Code != 200 {
				t.Errorf("%s: %d, broken off: %v, %s", backend, w.Code, broken, w.Body)
			}
			if w := ask(t.Context(), p, path, body, nil); w.Code != 429 {
				t.Errorf("%s: the next call: %d %s", backend, w.Code, w.Body)
			}
			closed(t, p)
		}
	})
}

// What a stream used is what the backend says at its end, however many events it
// came in: not all of them say something.
func TestBudgetOfTokensTakesTheBackendsCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		chunk := func(delta, finish string) string {
			return fmt.Sprintf("data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"delta\":%s,\"finish_reason\":%s}]}\n\n", delta, finish)
		}
		said := chunk(`{"content":"a "}`, "null")
		stream := []string{
			chunk(`{"role":"assistant","content":""}`, "null"), said, said, said, chunk(`{}`, `"stop"`),
			"data: {\"id\":\"c\",\"choices\":[],\"usage\":{\"prompt_tokens\":10,\"completion_tokens\":2}}\n\n", "data: [DONE]\n\n",
		}
		p, store := plugged(t, func(r *http.Request) (*http.Response, error) {
			return events(r, func(i int) string {
				if i == len(stream) {
					return ""
				}
				return stream[i]
			}), nil
		}, func(c *proxy.Config) {
			c.Control.Budget.Tokens = 35
			c.Models[0].TextOnly = true
		}, "backend")
		for i := range 3 {
			if w, broken := cutOff(t, p, attemptPath, streamed(hello)); broken || w.Code != 200 {
				t.Errorf("call %d: %d, broken off: %v, %s", i, w.Code, broken, w.Body)
			}
		}
		if w := ask(t.Context(), p, attemptPath, hello, nil); w.Code != 429 || !strings.Contains(w.Body.String(), "it has used 36") {
			t.Errorf("the next call: %d %s", w.Code, w.Body)
		}
		if err := p.Flush(t.Context(), nil); err != nil || len(store.calls()) != 4 {
			t.Errorf("%d calls on record, %v", len(store.calls()), err)
		}
		closed(t, p)
	})
}

// Streams that run at once are charged to one budget.
func TestBudgetOfTokensIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		p, store := plugged(t, func(r *http.Request) (*http.Response, error) { return events(r, runaway["chat"]), nil }, func(c *proxy.Config) {
			c.Control.Budget.Tokens = 20
			c.Models[0].TextOnly = true
		}, "backend")
		pieces := make(chan int)
		for range 2 {
			go func() {
				w, _ := cutOff(t, p, attemptPath, streamed(hello))
				pieces <- strings.Count(w.Body.String(), `"a "`)
			}()
		}
		if a, b := <-pieces, <-pieces; a+b < 21 || a+b > 22 {
			t.Errorf("the agent got %d and %d pieces", a, b)
		}
		if err := p.Flush(t.Context(), nil); err != nil || len(store.calls()) != 2 {
			t.Errorf("%d calls on record, %v", len(store.calls()), err)
		}
		closed(t, p)
	})
}
