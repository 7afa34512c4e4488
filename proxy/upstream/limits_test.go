package upstream

import (
	"math"
	"testing"
	"testing/synctest"
	"time"
)

// A backend that claims any number of tokens delays later calls by an hour, and not for ever.
func TestClaimedTokens(t *testing.T) {
	t.Parallel()
	for _, perMinute := range []int{1, 1000, math.MaxInt / 2} {
		synctest.Test(t, func(t *testing.T) {
			var l limiter
			l.configure(Limits{TokensPerMinute: perMinute})
			l.charge(math.MaxInt64)
			if l.tokens.Tokens() > 0 {
				t.Errorf("%d a minute: %g tokens are left, want a debt", perMinute, l.tokens.Tokens())
			}
			if perMinute > 1000 {
				return // an hour of this rate is more than a number can hold
			}
			time.Sleep(58 * time.Minute)
			if l.tokens.Tokens() > 0 {
				t.Errorf("%d a minute: %g tokens are left after 58 minutes, want a debt", perMinute, l.tokens.Tokens())
			}
			time.Sleep(2 * time.Minute)
			if l.tokens.Tokens() <= 0 {
				t.Errorf("%d a minute: %g tokens are left after an hour, want some", perMinute, l.tokens.Tokens())
			}
		})
	}
}
