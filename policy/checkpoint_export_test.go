package policy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
)

// TestExport: the file holds every tensor once, without gaps and without the columns
// that only the kernels need.
func TestExport(t *testing.T) {
	t.Parallel()
	cfg, err := testConfig().Checked()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "base.ckpt")
	if _, err := Create(cfg, 9, file); err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if err := Export(cfg, file, &out); err != nil {
		t.Fatal(err)
	}
	size := int(binary.LittleEndian.Uint64(out.Next(8)))
	if size%8 != 0 {
		t.Errorf("the header has %d bytes", size)
	}
	var header map[string]safetensor
	if err := json.Unmarshal(out.Next(size), &header); err != nil {
		t.Fatal(err)
	}
	data := out.Bytes()
	l := newLayout(cfg.shape())
	flat := l.initialize(9)
	if len(header) != len(l.allTensors) {
		t.Errorf("%d tensors, want %d", len(header), len(l.allTensors))
	}
	if got := header["head"].Shape; !slices.Equal(got, []int{cfg.Dim, cfg.Vocab}) {
		t.Errorf("the head has the shape %v", got)
	}
	if got := header["norm"].Shape; !slices.Equal(got, []int{cfg.Dim}) {
		t.Errorf("the last norm has the shape %v", got)
	}
	total := 0
	for _, want := range l.allTensors {
		got := header[want.name]
		if got.DType != "F32" || got.Offsets[0] != total {
			t.Fatalf("%s: %+v, want float32 from byte %d on", want.name, got, total)
		}
		total = got.Offsets[1]
		values := make([]float32, (got.Offsets[1]-got.Offsets[0])/4)
		if _, err := binary.Decode(data[got.Offsets[0]:], binary.LittleEndian, values); err != nil {
			t.Fatal(err)
		}
		columns := len(values) / want.rows
		for row := range want.rows {
			if !slices.Equal(values[row*columns:][:columns], want.in(flat)[row*want.cols:][:columns]) {
				t.Fatalf("row %d of %s differs", row, want.name)
			}
		}
	}
	if total != len(data) {
		t.Errorf("%d bytes of tensors in %d", total, len(data))
	}
	if err := Export(cfg, file+"x", &out); !errors.Is(err, agl.ErrNotFound) {
		t.Errorf("a file that is missing: %v", err)
	}
	cfg.FF *= 2
	if err := Export(cfg, file, &out); !errors.Is(err, agl.ErrInvalid) {
		t.Errorf("another shape: %v", err)
	}
}
