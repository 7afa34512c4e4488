package dataset

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go/encoding/delta"
	"github.com/parquet-go/parquet-go/encoding/rle"
	"github.com/parquet-go/parquet-go/format"
)

// The sizes of encoded texts are those that the library decodes.
func TestDeltaSizes(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		n := random.IntN(700)
		offsets, text := []uint32{0}, []byte{}
		for range n {
			if random.IntN(2) == 0 {
				text = append(text, strings.Repeat("ab", random.IntN(200))...)
			}
			text = append(text, strings.Repeat("ab", random.IntN(1<<random.IntN(10)))...)
			offsets = append(offsets, uint32(len(text)))
		}
		prefixed, err := new(delta.ByteArrayEncoding).EncodeByteArray(nil, text, offsets)
		if err != nil {
			t.Fatal(err)
		}
		lengths, err := new(delta.LengthByteArrayEncoding).EncodeByteArray(nil, text, offsets)
		if err != nil {
			t.Fatal(err)
		}
		if n == 0 {
			continue // nothing is encoded
		}
		c := column{kind: format.ByteArray}
		for encoding, data := range map[format.Encoding][]byte{format.DeltaByteArray: prefixed, format.DeltaLengthByteArray: lengths} {
			overhead := 8 * n
			if encoding == format.DeltaByteArray {
				overhead *= 2
			}
			if got, err := c.valuesSize(encoding, int64(n), data); err != nil || got != int64(len(text)+overhead) {
				t.Errorf("seed %d, %s: %d bytes, want %d, error %v", seed, encoding, got, len(text)+overhead, err)
			}
		}
	}
}

// Runs have the values that the library has encoded.
func TestRuns(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 0))
		width := 1 + random.IntN(8)
		var want []byte
		for range random.IntN(50) {
			want = append(want, bytes.Repeat([]byte{byte(random.IntN(1 << width))}, 1+random.IntN(20))...)
		}
		data, err := (&rle.Encoding{BitWidth: width}).EncodeLevels(nil, want)
		if err != nil {
			t.Fatal(err)
		}
		var got []byte
		total, err := runs(data, width, func(count int64, value uint64) { got = append(got, bytes.Repeat([]byte{byte(value)}, int(count))...) })
		if err != nil || total < int64(len(want)) || !bytes.Equal(got[:min(len(got), len(want))], want) {
			t.Errorf("seed %d: width %d, %d values, error %v:\n%v\nwant\n%v", seed, width, total, err, got, want)
		}
	}
}

// A few bytes that stand for more than a page may have are refused; so are damaged ones.
func TestSmallPagesOfManyValues(t *testing.T) {
	t.Parallel()
	many := binary.AppendUvarint(nil, 1<<30)
	packed := func(total []byte, numbers ...byte) []byte { // blocks of 128 in 4 parts
		return append(append([]byte{0x80, 1, 4}, total...), numbers...)
	}
	for name, tt := range map[string]struct {
		encoding format.Encoding
		data     []byte
		want     string
	}{
		"a run":                     {format.RLEDictionary, append([]byte{8}, append(binary.AppendUvarint(nil, 1<<31), 0)...), "runs of more than"},
		"many runs":                 {format.RLEDictionary, append([]byte{8}, bytes.Repeat(append(binary.AppendUvarint(nil, maxValues), 0), 3)...), "runs of more than"},
		"an endless run":            {format.RLEDictionary, []byte{8, 0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1, 0}, "runs of more than"},
		"packed values of no bits":  {format.RLEDictionary, append([]byte{0}, binary.AppendUvarint(nil, 1<<31|1)...), "runs of more than"},
		"wide values":               {format.RLEDictionary, []byte{200, 2, 0}, "200 bits"},
		"a cut run":                 {format.RLEDictionary, []byte{8, 3, 0}, "ends too early"},
		"numbers":                   {format.DeltaBinaryPacked, packed(many, 0), "1073741824 values"},
		"texts":                     {format.DeltaLengthByteArray, packed(many, 0), "1073741824 values"},
		"long texts":                {format.DeltaLengthByteArray, packed([]byte{2}, append(binary.AppendVarint(nil, 1<<30), 0, 0, 0, 0, 0)...), "the values of a page have 2147483664 bytes"},
		"long prefixes":             {format.DeltaByteArray, append(packed([]byte{2}, append(binary.AppendVarint(nil, 1<<30), 0, 0, 0, 0, 0)...), packed([]byte{2}, 0, 0, 0, 0, 0, 0)...), "the values of a page have 2147483680 bytes"},
		"a negative length":         {format.DeltaLengthByteArray, packed([]byte{1}, binary.AppendVarint(nil, -1)...), "negative length"},
		"blocks without parts":      {format.DeltaLengthByteArray, []byte{0x80, 1, 0, 2, 0}, "in 0 parts"},
		"parts without values":      {format.DeltaLengthByteArray, []byte{2, 4, 9, 0, 0, 0, 0, 0, 0}, "blocks of 2 values"},
		"a block that is cut":       {format.DeltaLengthByteArray, packed([]byte{9}, 0, 0, 8, 8, 8, 8), "ends too early"},
		"a header that is cut":      {format.DeltaByteArray, []byte{0x80}, "ends too early"},
		"more plain values than 8M": {format.Plain, nil, "a page has 8388609 values"},
	} {
		n := int64(1)
		if tt.encoding == format.Plain {
			n = maxValues + 1
		}
		c := column{kind: format.ByteArray}
		if size, err := c.valuesSize(tt.encoding, n, tt.data); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %d bytes, error %v", name, size, err)
		}
	}
}

// The longest row is found over runs and pages.
func TestLongestRow(t *testing.T) {
	t.Parallel()
	c := column{kind: format.Int32, repetition: 1}
	for _, levels := range [][]byte{{0, 1, 1, 0}, {1, 1, 1, 1, 0, 0}} { // a row of 3, one of 5 over two pages, two of 1
		data, err := (&rle.Encoding{BitWidth: 1}).EncodeLevels(nil, levels)
		if err != nil {
			t.Fatal(err)
		}
		page := append(binary.LittleEndian.AppendUint32(nil, uint32(len(data))), data...)
		if err := c.addData(int64(len(levels)), format.Plain, page, [2]int{-1, -1}); err != nil {
			t.Fatal(err)
		}
	}
	if c.longestRow != 5 {
		t.Errorf("the longest row has %d values", c.longestRow)
	}
}

func FuzzPageSize(f *testing.F) {
	f.Add(byte(format.RLEDictionary), byte(1), byte(1), []byte{2, 0, 0, 0, 8, 1, 3, 0})
	f.Add(byte(format.DeltaByteArray), byte(0), byte(0), []byte{0x80, 1, 4, 2, 4, 0, 0, 0, 0, 0})
	f.Fuzz(func(_ *testing.T, encoding, repetition, definition byte, data []byte) {
		c := column{kind: format.ByteArray, repetition: int(repetition), definition: int(definition)}
		_ = c.addData(int64(len(data)), format.Encoding(encoding), data, [2]int{-1, -1}) // must return
	})
}
