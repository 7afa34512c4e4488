package proxy

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// The name is found wherever it is, as by a plain search.
func TestIndexUsage(t *testing.T) {
	t.Parallel()
	pieces := []string{`"`, `u`, `usage`, `"usage`, `usage"`, `":"`, ` and a long text without any quote, `, `{"token":" word"},`}
	random := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same texts each time
	found := 0
	for range 20_000 {
		var text []byte
		for range random.IntN(80) {
			text = append(text, pieces[random.IntN(len(pieces))]...)
		}
		if random.IntN(2) == 0 {
			text = bytes.ReplaceAll(text, []byte(usageName), nil)
		}
		want := bytes.Index(text, []byte(usageName))
		if got := indexUsage(text); got != want {
			t.Fatalf("%q: at %d, want %d", text, got, want)
		}
		if want > 512 {
			found++
		}
	}
	if found < 100 {
		t.Errorf("%d texts had the name far from their beginning", found)
	}
}
