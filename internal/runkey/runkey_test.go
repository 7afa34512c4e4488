package runkey

import (
	"strings"
	"testing"
	"time"
)

func TestKeys(t *testing.T) {
	t.Parallel()
	now := time.Unix(1700000000, 0)
	run := New("secret", now.Add(time.Hour))
	key, ok := ForAttempt(run, "ro-1", "at-1")
	if !ok || !IsVirtual(key) || !IsVirtual(run) || strings.Contains(key, "secret") {
		t.Fatalf("run key %q, attempt key %q", run, key)
	}
	for _, c := range []struct {
		name, secret, key, rollout, attempt string
		now                                 time.Time
		want                                bool
	}{
		{"its own", "secret", key, "ro-1", "at-1", now, true},
		{"another attempt", "secret", key, "ro-1", "at-2", now, false},
		{"another rollout", "secret", key, "ro-2", "at-1", now, false},
		{"ids cut elsewhere", "secret", key, "ro-1a", "t-1", now, false},
		{"another secret", "Secret", key, "ro-1", "at-1", now, false},
		{"expired", "secret", key, "ro-1", "at-1", now.Add(time.Hour), false},
		{"a later expiry", "secret", strings.Replace(key, "1700003600", "1800003600", 1), "ro-1", "at-1", now, false},
		{"the run key itself", "secret", run, "ro-1", "at-1", now, false},
		{"no key", "secret", "", "ro-1", "at-1", now, false},
		{"half a key", "secret", "agl-attempt-1700003600", "ro-1", "at-1", now, false},
	} {
		if got := Check(c.secret, c.key, c.rollout, c.attempt, c.now); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
	if _, ok := ForAttempt(key, "ro-1", "at-1"); ok {
		t.Error("an attempt key was taken for a run key")
	}
	if IsVirtual("sk-1") {
		t.Error("another key was taken for a virtual one")
	}
}
