package upstream

import (
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

// A body in parts reads as one, as often as it is needed, and has the length that is announced.
func TestBody(t *testing.T) {
	t.Parallel()
	for _, parts := range [][]string{{}, {""}, {"a"}, {"", "ab", "", "c", ""}, {strings.Repeat("x", 70_000), "y", strings.Repeat("z", 3)}} {
		want := strings.Join(parts, "")
		body := &Body{}
		for _, part := range parts {
			body.parts = append(body.parts, []byte(part))
		}
		if body.len() != int64(len(want)) || string(body.Bytes()) != want {
			t.Errorf("%d parts: %d bytes, %.50q", len(parts), body.len(), body.Bytes())
		}
		for range 2 {
			if err := iotest.TestReader(body.reader(), []byte(want)); err != nil {
				t.Errorf("%d parts: %v", len(parts), err)
			}
		}
		body.Free()
		if n, err := body.reader().Read(make([]byte, 1)); n != 0 || err == nil || err == io.EOF {
			t.Errorf("after Free: %d, %v", n, err)
		}
	}
}

// Memory of an earlier body is used again, but its size does not change how much is admitted before bytes have arrived.
func TestReadUntrustedUsesMemory(t *testing.T) {
	t.Parallel()
	const length = 300_000
	text := strings.Repeat("0123456789", length/10)
	steps := func(buf []byte) (grown []int, got []byte) {
		got, err := ReadUntrusted(iotest.OneByteReader(strings.NewReader(text)), buf, length, length, func(n int) error {
			grown = append(grown, n)
			return nil
		})
		if err != nil || string(got) != text {
			t.Errorf("read %d bytes, %v", len(got), err)
		}
		return grown, got
	}
	fresh, _ := steps(nil)
	kept := make([]byte, 7, length+5)
	again, got := steps(kept)
	if len(fresh) != 2 || fresh[0] != 3*FirstRead || fresh[0]+fresh[1] != length-FirstRead || again[0] != fresh[0] || again[1] != fresh[1] {
		t.Errorf("memory grows by %d, and with earlier memory by %d", fresh, again)
	}
	if &got[0] != &kept[0] {
		t.Error("the earlier memory is not used")
	}
}
