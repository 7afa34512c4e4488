package exchange

import (
	"strings"
	"testing"
)

// The meter reads the backend's own count wherever it stands, and estimates where
// there is none.
func TestMeter(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a long text ", 1000)
	for name, tt := range map[string]struct {
		status int
		stream bool
		reply  string
		want   Usage
	}{
		"chat":                     {reply: `{"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":1}},"x":"` + long + `"}`, want: Usage{3, 2}},
		"usage in a text":          {reply: `{"usage" : {"prompt_tokens":3,"completion_tokens":2},"choices":[{"message":{"content":"usage","name":"usage"}}],"usage ":1}`, want: Usage{3, 2}},
		"null":                     {reply: `{"usage":null}`, want: Usage{100, 3}},
		"cut off":                  {reply: `{"usage":{"prompt_tokens":3`, want: Usage{100, 6}},
		"no JSON":                  {reply: `"usage"`, want: Usage{100, 1}},
		"a cache read and wrote":   {reply: `{"usage":{"input_tokens":30,"cache_read_input_tokens":7,"cache_creation_input_tokens":3,"output_tokens":12}}`, want: Usage{40, 12}},
		"an error":                 {status: 500, reply: `{"error":{"message":"` + long + `"}}`, want: Usage{}},
		"nothing":                  {want: Usage{}},
		"a stream":                 {stream: true, reply: "data: {\"choices\":[{}]}\n\ndata: {\"choices\":[],\"usage\":{\"prompt_tokens\":3,\"completion_tokens\":2}}\n\ndata: [DONE]\n\n", want: Usage{3, 2}},
		"a stream without usage":   {stream: true, reply: "data: {\"choices\":[{}]}\n\n: ping\n\ndata: {\"choices\":[{}]}\n\n", want: Usage{100, 2}},
		"a stream of a response":   {stream: true, reply: "data: {\"type\":\"response.completed\",\"response\":{\"usage\":{\"input_tokens\":5,\"output_tokens\":6}}}\n\n", want: Usage{5, 6}},
		"a stream of a message":    {stream: true, reply: "data: {\"type\":\"message_start\",\"message\":{\"usage\":{\"input_tokens\":4,\"cache_read_input_tokens\":3,\"output_tokens\":1}}}\n\ndata: {\"type\":\"message_delta\",\"usage\":{\"output_tokens\":9}}\n\n", want: Usage{7, 9}},
		"usage in a stream's text": {stream: true, reply: "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"usage\\\"\"}}]}\n\n", want: Usage{100, 1}},
	} {
		for _, cut := range []int{1, 7, 1 << 20} {
			if cut < len(tt.reply) && !tt.stream {
				continue // a reply that came whole is one piece
			}
			m := meter{request: 400}
			m.begin(max(tt.status, 200), tt.stream, false)
			for rest := tt.reply; rest != ""; {
				n := min(cut, len(rest))
				m.write([]byte(rest[:n]))
				rest = rest[n:]
			}
			if got := m.count(); got != tt.want {
				t.Errorf("%s, in pieces of %d: %+v, want %+v", name, cut, got, tt.want)
			}
		}
	}
}
