package yamlfile

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestDifferences(t *testing.T) {
	t.Parallel()
	before := "agent:\n  command: [a, b]\n  timeout: 10s # short\n  env: {X: y}\nseed: 1\n"
	after := "agent: {command: [a, c], timeout: 1m, memory: 2GiB}\nseed: 1 # the same\n"
	want := []string{
		"agent.command: [a, b] → [a, c]", "agent.timeout: 10s → 1m", "agent.memory: 2GiB, which was not given", "agent.env.X: left out, was y",
	}
	got, err := Differences([]byte(before), []byte(after))
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("differences (-want +got), error %v:\n%s", err, diff)
	}
	if got, err := Differences([]byte(before), []byte(before)); len(got) > 0 || err != nil {
		t.Errorf("the same file differs: %v, %v", got, err)
	}
	if _, err := Differences([]byte(before), []byte("a: [")); err == nil {
		t.Error("a file that is no YAML has no error")
	}
}
