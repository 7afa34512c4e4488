package openai_test

import (
	"testing"

	"github.com/agl-go/agl/proxy/openai"
)

func TestParseUsage(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]openai.Usage{ // the zero value: no counts
		`null`: {},
		`{}`:   {},
		`{"prompt_tokens":3,"completion_tokens":2,"total_tokens":5,"prompt_tokens_details":{"cached_tokens":1}}`:                     {Prompt: 3, Completion: 2, Total: 5},
		`{"input_tokens":3,"cache_creation_input_tokens":4,"cache_read_input_tokens":null,"output_tokens":2,"server_tool_use":null}`: {Prompt: 7, Completion: 2},
		`{"output_tokens":2}`:                                         {Completion: 2},
		`{"prompt_tokens":null,"completion_tokens":2}`:                {Completion: 2},
		`{"prompt_tokens":1099511627776,"completion_tokens":1}`:       {Prompt: 1 << 40, Completion: 1},
		`{"prompt_tokens":1099511627777,"completion_tokens":1}`:       {},
		`{"prompt_tokens":9223372036854775807,"completion_tokens":1}`: {},
		`{"prompt_tokens":1e400,"completion_tokens":1}`:               {},
		`{"prompt_tokens":"3","completion_tokens":1}`:                 {},
		`{"prompt_tokens":3.0,"completion_tokens":2e1}`:               {Prompt: 3, Completion: 20},
		`{"prompt_tokens":3.5,"completion_tokens":1}`:                 {},
		`{"prompt_tokens":3.0,"completion_tokens":-1.0}`:              {},
		`{"prompt_tokens":1e30,"completion_tokens":1}`:                {},
		`{"prompt_tokens":true,"completion_tokens":1}`:                {},
		`{"prompt_tokens":3,"completion_tokens":-1}`:                  {},
		`{"input_tokens":3,"cache_read_input_tokens":-9}`:             {},
	} {
		if got, ok := openai.ParseUsage([]byte(raw)); got != want || ok != (want != openai.Usage{}) {
			t.Errorf("%s: got %+v, %t, want %+v", raw, got, ok, want)
		}
	}
}
