package main

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/agl-go/agl/bench/internal/bench"
)

// reply is the reply of the model server to the requests of a workload.
type reply struct {
	body   string
	events []string
}

// replies returns the replies by workload: a small chat, a long answer and a stream, as
// vLLM sends them, with token ids and log-probabilities.
func replies() map[string]reply {
	const text = "All happy families are alike. "
	return map[string]reply{
		"small":  {body: completion("Hello! How can I help you?", 8)},
		"39KB":   {body: completion(strings.Repeat(text, 1300), 8)},
		"stream": {events: chunks(100)},
	}
}

func completion(text string, tokens int) string {
	ids := strings.TrimSuffix(strings.Repeat("12345,", tokens), ",")
	one := `{"token":" word","logprob":-0.5,"bytes":[32,119,111,114,100],"top_logprobs":[]}`
	logprobs := strings.TrimSuffix(strings.Repeat(one+",", tokens), ",")
	return fmt.Sprintf(`{"id":"chatcmpl-0","object":"chat.completion","created":1700000000,"model":"m","choices":[{"index":0,"message":{"role":"assistant","content":%q},`+
		`"logprobs":{"content":[%s]},"finish_reason":"stop","token_ids":[%s]}],"usage":{"prompt_tokens":3,"completion_tokens":%d,"total_tokens":%d},"prompt_token_ids":[1,2,3]}`,
		text, logprobs, ids, tokens, tokens+3)
}

func chunks(n int) []string {
	events := make([]string, 0, n+1)
	for i := range n {
		finish := "null"
		if i == n-1 {
			finish = `"stop"`
		}
		events = append(events, fmt.Sprintf("data: {\"id\":\"chatcmpl-0\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word\"},"+
			"\"logprobs\":{\"content\":[{\"token\":\" word\",\"logprob\":-0.5,\"bytes\":[32,119,111,114,100],\"top_logprobs\":[]}]},\"finish_reason\":%s,\"token_ids\":[%d]}]}\n\n", finish, 1000+i))
	}
	return append(events, "data: [DONE]\n\n")
}

// serveBackend is the model server, the same for all gateways. A stream named
// "hold" stops after its first event until the client leaves.
func serveBackend([]string) error {
	all := replies()
	return bench.Serve(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		_, rest, _ := strings.Cut(string(body), "workload:")
		name, _, _ := strings.Cut(rest, `"`)
		if name == modelCall {
			name = "small"
			select {
			case <-time.After(modelTime):
			case <-r.Context().Done():
				return
			}
		}
		if all[name].body != "" {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, all[name].body) // the caller reports an incomplete reply
			return
		}
		w.Header().Set("Content-Type", "text/event-stream")
		flusher := http.NewResponseController(w)
		for _, e := range all["stream"].events {
			if _, err := io.WriteString(w, e); err != nil || flusher.Flush() != nil {
				return
			}
			if name == "hold" {
				<-r.Context().Done()
				return
			}
		}
	}))
}

// request is the body of a call of a workload.
func request(workload string) string {
	stream := ""
	if workload == "stream" || workload == "hold" {
		stream = `"stream":true,`
	}
	return `{"model":"m",` + stream + `"messages":[{"role":"user","content":"workload:` + workload + `"}]}`
}
