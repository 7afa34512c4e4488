package store

import (
	"log/slog"
	"testing"
	"time"

	"github.com/agl-go/agl"
)

func TestObservedCall(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		attributes      string
		version         string
		prompt, replies int64
	}{
		"nothing":                   {`{}`, "", 0, 0},
		"a version":                 {`{"gen_ai.request.model":"asked","gen_ai.response.model":"m","agentlightning.model.version":"m@3"}`, "m@3", 0, 0},
		"a model":                   {`{"gen_ai.request.model":"asked","gen_ai.response.model":"m\u00e9","agentlightning.model.version":""}`, "mé", 0, 0},
		"a model that is no text":   {`{"gen_ai.request.model":"asked","gen_ai.response.model":7}`, "asked", 0, 0},
		"tokens":                    {`{"gen_ai.usage.completion_tokens":5,"gen_ai.usage.prompt_tokens":7}`, "", 7, 5},
		"tokens by the other names": {`{"gen_ai.usage.output_tokens":5,"gen_ai.usage.input_tokens":7.0}`, "", 7, 5},
		"both names":                {`{"gen_ai.usage.input_tokens":1,"gen_ai.usage.output_tokens":2,"gen_ai.usage.prompt_tokens":7,"gen_ai.usage.completion_tokens":5}`, "", 7, 5},
		"no counts":                 {`{"gen_ai.usage.prompt_tokens":-1,"gen_ai.usage.completion_tokens":1e300}`, "", 0, 0},
		"names in a text":           {`{"gen_ai.prompt.0.content":"\"gen_ai.usage.prompt_tokens\":9,\"agentlightning.model.version\":\"x\""}`, "", 0, 0},
	} {
		version, prompt, replies := observedCall(agl.Attributes(tt.attributes))
		if version != tt.version || prompt != tt.prompt || replies != tt.replies {
			t.Errorf("%s: %q, %d, %d, want %q, %d, %d", name, version, prompt, replies, tt.version, tt.prompt, tt.replies)
		}
	}
}

// plain is an observer that counts no calls.
type plain struct{}

func (plain) ObserveStore(string, error, time.Duration)                 {}
func (plain) ObserveDriver(string, error, time.Duration)                {}
func (plain) ObserveRollout(agl.RolloutStatus, agl.Mode, time.Duration) {}

// counting also counts calls.
type counting struct {
	plain

	versions map[string]int
}

func (o counting) ObserveCall(version string, _, _ int64) { o.versions[version]++ }

// TestObserveCalls: the attributes of a call are read for an observer that counts calls, and for no other.
func TestObserveCalls(t *testing.T) { //nolint:paralleltest // it counts allocations
	call := agl.Span{Name: agl.SpanLiteLLMRequest, Attributes: agl.Attributes(`{"agentlightning.model.version":"m\u00e9"}`)}
	spans := []agl.Span{{Name: "other", Attributes: call.Attributes}, call}
	observe := func(o Observer) func() {
		config := Config{Observer: o, Logger: slog.New(slog.DiscardHandler)}.withDefaults()
		s := &Store{committer: newCommitter(&config)}
		return func() { s.observeCalls(spans) }
	}
	o := counting{versions: map[string]int{}}
	observe(o)()
	if len(o.versions) != 1 || o.versions["mé"] != 1 {
		t.Errorf("counted %v, want one call of mé", o.versions)
	}
	for name, o := range map[string]Observer{"none": nil, "plain": plain{}} {
		if n := testing.AllocsPerRun(10, observe(o)); n > 0 {
			t.Errorf("%s: %v allocations, want none: the attributes are not needed", name, n)
		}
	}
}
