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
	random := rand.New(rand.NewPCG(1, 2))
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

func TestCountData(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int64{
		"":                                      0,
		"data":                                  0,
		"data:":                                 1,
		"data: {}\n\ndata: [DONE]\n\n":          2,
		"event: x\r\ndata: {}\r\n\r\n: data:\n": 1,
		"data: \"data: data:\"\n\ndata:1":       2,
		" a line that began before\n\ndata: 1":  1,
	} {
		if got := countData([]byte(text)); got != want {
			t.Errorf("%q: %d lines of data, want %d", text, got, want)
		}
	}
}
