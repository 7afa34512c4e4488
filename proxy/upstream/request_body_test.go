package upstream

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
)

// Memory of earlier bodies is used again, but a body that has not arrived holds none of it: memory is asked for as it is admitted.
func TestReadUntrustedUsesMemory(t *testing.T) {
	t.Parallel()
	const length = 700_000
	text := strings.Repeat("0123456789", length/10)
	kept := make([]byte, 7, length+5)
	for _, fits := range []int{FirstRead, 8 * FirstRead, length, length + 1} {
		var steps []string
		source := iotest.OneByteReader(strings.NewReader(text))
		arrived := 0
		body := readerFunc(func(p []byte) (int, error) {
			n, err := source.Read(p)
			arrived += n
			return n, err
		})
		got, err := ReadUntrusted(body, memoryFunc(func(n int) []byte {
			steps = append(steps, fmt.Sprintf("%d for %d", arrived, n))
			if n < fits {
				return nil
			}
			return kept
		}), length, length, func(n int) error {
			steps = append(steps, fmt.Sprintf("%d +%d", arrived, n))
			return nil
		})
		if err != nil || string(got) != text {
			t.Fatalf("read %d bytes, %v", len(got), err)
		}
		want := []string{"0 for 65536", "65536 +458752"}
		if fits > FirstRead {
			want = append(want, "65536 for 524288")
		}
		want = append(want, "524288 +175712")
		if fits > 8*FirstRead {
			want = append(want, "524288 for 700000")
		}
		if !slices.Equal(steps, want) {
			t.Errorf("memory for %d bytes and more: got %q, want %q", fits, steps, want)
		}
		if used := &got[0] == &kept[0]; used != (fits <= length) {
			t.Errorf("memory for %d bytes and more is used: %v", fits, used)
		}
	}
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }

type memoryFunc func(n int) []byte

func (f memoryFunc) Take(n int) []byte { return f(n) }

// Put spoils what is given back.
func (memoryFunc) Put(b []byte) { clear(b[:cap(b)]) }
