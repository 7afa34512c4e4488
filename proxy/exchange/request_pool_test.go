package exchange

import (
	"testing"

	"github.com/agl-go/agl/proxy/upstream"
)

// A call is known to hold the length of its request, so it must not hold much more than that.
func TestRequestPoolFits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kept   int
		length int64
		used   bool
	}{
		{100_000, 100_000, true},
		{400_000, 100_000, true},
		{400_001, 100_000, false},
		{100_000, 400_000, true}, // it grows
		{100_000, upstream.FirstRead, false},
		{100_000, -1, false},
		{upstream.FirstRead, 100_000, false},
		{maxPooled + 1, maxPooled, false},
	} {
		used := false
		for range 100 { // a pool may drop what it is given
			var p requestPool
			p.put(make([]byte, tt.kept))
			used = used || p.take(tt.length) != nil
		}
		if used != tt.used {
			t.Errorf("%d bytes are used for a request of %d: %v", tt.kept, tt.length, used)
		}
	}
}
