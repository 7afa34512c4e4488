package exchange

import (
	"testing"

	"github.com/agl-go/agl/proxy/upstream"
)

// A call is known to hold the bytes for which it takes memory, so it must not hold much more than that.
func TestRequestPoolFits(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		kept, n int
		used    bool
	}{
		{300_000, 300_000, true},
		{400_000, 100_000, true},
		{400_001, 100_000, false},
		{299_999, 300_000, false},
		{upstream.FirstRead, upstream.FirstRead, true},
		{upstream.FirstRead - 1, upstream.FirstRead - 1, false},
		{4 * upstream.FirstRead, upstream.FirstRead, true},
		{4*upstream.FirstRead + 1, upstream.FirstRead, false},
		{maxPooled, maxPooled, true},
		{maxPooled + 1, maxPooled, false},
	} {
		used := false
		for range 100 { // a pool may drop what it is given
			var p requestPool
			p.Put(make([]byte, tt.kept))
			used = used || p.Take(tt.n) != nil
		}
		if used != tt.used {
			t.Errorf("%d bytes are used for %d: %v", tt.kept, tt.n, used)
		}
	}
}
