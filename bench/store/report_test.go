package main

import (
	"strings"
	"testing"
	"time"
)

// What was not measured, and what no rollout was finished for, is a dash.
func TestReportWithoutRollouts(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	report(&out, []contender{{name: namePython}}, map[string][]result{namePython: {{elapsed: time.Second}}})
	if got := strings.Fields(strings.Split(out.String(), "\n")[2]); strings.Join(got, " ") != namePython+" 0.0 0 - - -" {
		t.Errorf("got %s", out.String())
	}
	out.Reset()
	calls := map[string][]time.Duration{"dequeue": {time.Millisecond}}
	report(&out, []contender{{name: namePython}}, map[string][]result{namePython: {{rollouts: 1, elapsed: time.Second, calls: calls}}})
	if text := out.String(); strings.Contains(text, "NaN") || !strings.HasSuffix(text, " 1ms              -\n") {
		t.Errorf("got %s", text)
	}
}
