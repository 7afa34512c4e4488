package access_test

import (
	"errors"
	"testing"
	"time"

	"github.com/agl-go/agl/access"
)

// A limit that is lowered counts the calls of the last minute that were made before: the next call waits for them.
func TestLoweredRate(t *testing.T) {
	t.Parallel()
	var rates access.Rates
	begin := time.Now()
	admit := func(perMinute int64, second int) error {
		subject := &access.Subject{ID: "key", Name: "the key", Rules: access.Rules{CallsPerMinute: perMinute}}
		return rates.Admit(subject, "model", begin.Add(time.Duration(second)*time.Second))
	}
	for _, second := range []int{0, 30, 31} {
		if err := admit(3, second); err != nil {
			t.Errorf("second %d: %v", second, err)
		}
	}
	for _, at := range []struct {
		second int
		wait   time.Duration
	}{{61, 30 * time.Second}, {90, time.Second}} {
		err := admit(1, at.second)
		if refused, ok := errors.AsType[*access.RuleError](err); !ok || refused.Wait != at.wait {
			t.Errorf("second %d: got %v, want a wait of %v", at.second, err, at.wait)
		}
	}
	if err := admit(1, 91); err != nil {
		t.Error(err)
	}
}
