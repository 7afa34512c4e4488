package agl_test

import (
	"testing"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/runkey"
)

func TestProxyLLMForAttempt(t *testing.T) {
	t.Parallel()
	run := runkey.New("secret", time.Unix(1700003600, 0))
	own, _ := runkey.ForAttempt(run, "ro-1", "at-1")
	for given, want := range map[string]string{run: own, "env:KEY": "env:KEY"} {
		p := agl.ProxyLLM{LLM: agl.LLM{Endpoint: "http://proxy/v1", Model: "m", APIKey: agl.Some(given)}}
		llm, err := p.ForAttempt("ro-1", "at-1")
		if err != nil || llm.APIKey != agl.Some(want) || llm.Endpoint != "http://proxy/rollout/ro-1/attempt/at-1/v1" {
			t.Errorf("key %q: got %+v, %v, want key %q", given, llm, err, want)
		}
	}
	if llm, err := (agl.ProxyLLM{}).ForAttempt("ro-1", ""); agl.ErrorCode(err) != agl.CodeInvalid {
		t.Errorf("half an attempt: %+v, %v", llm, err)
	}
}
