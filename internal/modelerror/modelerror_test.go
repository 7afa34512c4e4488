package modelerror

import (
	"strings"
	"testing"

	"github.com/agl-go/agl"
)

func TestOutcome(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 2*maxMessage)
	for _, c := range []struct {
		name   string
		status int
		body   string
		want   agl.Outcome
	}{
		{"a reply", 200, `{"error":{"message":"no"}}`, agl.Outcome{}},
		{"malformed", 400, `{"error":{"message":"no such field","code":null}}`, agl.Outcome{Message: "no such field"}},
		{"the code of an overflow", 400, `{"error":{"message":"too long","code":"context_length_exceeded"}}`, agl.Outcome{Kind: agl.OutcomeContextOverflow, Message: "too long"}},
		{"the words of an overflow", 400, `{"error":{"message":"This model's Maximum context length is 8","code":400}}`, agl.Outcome{Kind: agl.OutcomeContextOverflow, Message: "This model's Maximum context length is 8"}},
		{"a spent budget", 429, `{"error":{"message":"spent","code":"budget_exceeded"}}`, agl.Outcome{Kind: agl.OutcomeBudget, Message: "spent"}},
		{"overloaded", 429, `{"error":{"message":"slow down"}}`, agl.Outcome{Kind: agl.OutcomeModelError, Message: "slow down"}},
		{"no such model", 404, `{"error":{"message":"what?"}}`, agl.Outcome{Kind: agl.OutcomeModelError, Message: "what?"}},
		{"another shape", 500, `{"detail":"broken"}`, agl.Outcome{Kind: agl.OutcomeModelError, Message: `{"detail":"broken"}`}},
		{"not JSON", 502, long, agl.Outcome{Kind: agl.OutcomeModelError, Message: long[:maxMessage]}},
		{"nothing", 503, ``, agl.Outcome{Kind: agl.OutcomeModelError}},
	} {
		if got := Outcome(c.status, []byte(c.body)); got != c.want {
			t.Errorf("%s: got %+v, want %+v", c.name, got, c.want)
		}
	}
}
