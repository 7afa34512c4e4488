package dataset_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/compress"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/dataset"
)

// A few kilobytes that stand for hundreds of megabytes are refused before they are decoded.
func TestLargePage(t *testing.T) {
	path := filepath.Join(t.TempDir(), "bomb.parquet")
	type row struct {
		N int64 `parquet:"n,zstd"`
	}
	if err := parquet.WriteFile(path, make([]row, 9<<20), parquet.PageBufferSize(1<<30)); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Size() > 1<<20 {
		t.Fatalf("the file has %d bytes, error %v", info.Size(), err)
	}
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	tasks, err := readAll(path)
	runtime.ReadMemStats(&after)
	if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "a page has 7549") || len(tasks) > 0 {
		t.Errorf("%d tasks, error %v", len(tasks), err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 32<<20 {
		t.Errorf("%d bytes were allocated", took)
	}
}

// A page whose header says that it has few bytes is refused before it is decoded, in every
// compression.
func TestPageThatLies(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and all in one goroutine")
	}
	for name, codec := range map[string]compress.Codec{"zstd": &parquet.Zstd, "gzip": &parquet.Gzip, "snappy": &parquet.Snappy, "brotli": &parquet.Brotli, "lz4": &parquet.Lz4Raw} {
		schema := parquet.NewSchema("row", parquet.Group{"n": parquet.Compressed(parquet.Int(64), codec)})
		var file bytes.Buffer
		w := parquet.NewGenericWriter[any](&file, schema, parquet.PageBufferSize(1<<30))
		const rows = 1 << 20
		for range 1 << 10 {
			if _, err := w.WriteRows(slices.Repeat([]parquet.Row{{parquet.Int64Value(0).Level(0, 0, 0)}}, rows>>10)); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		// The page's size is a zigzag number in its header; the lie is as long.
		lie := bytes.Repeat([]byte{0x80}, len(binary.AppendUvarint(nil, 2*8*rows)))
		lie[0], lie[len(lie)-1] = 0x80|100, 0
		data := bytes.Replace(file.Bytes(), binary.AppendUvarint(nil, 2*8*rows), lie, 1)
		path := filepath.Join(t.TempDir(), name+".parquet")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		tasks, err := readAll(path)
		if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "a page ") || len(tasks) > 0 {
			t.Errorf("%s: %d tasks, error %v", name, len(tasks), err)
		}
	}
}

// Values that a page hardly has to hold are refused before they are decoded: texts that
// begin like the one before, and runs of one value.
func TestPageThatExpands(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and all in one goroutine")
	}
	long := strings.Repeat("x", 1<<20)
	type texts struct {
		Text string `parquet:"text,delta"`
	}
	type words struct {
		Word string `parquet:"word,dict"`
	}
	type lists struct {
		Words []string `parquet:"words,dict"`
	}
	for name, tt := range map[string]struct {
		write func(path string) error
		want  string
		most  uint64 // bytes that reading allocates
	}{
		"texts that begin equally": {func(path string) error {
			schema := parquet.NewSchema("row", parquet.Group{"text": parquet.Encoded(parquet.String(), &parquet.DeltaByteArray)})
			return parquet.WriteFile(path, slices.Repeat([]texts{{long[:100<<10]}}, 700), schema, parquet.PageBufferSize(1<<30))
		}, "the values of a page have 716", 32 << 20},
		"runs": {func(path string) error {
			return parquet.WriteFile(path, slices.Repeat([]words{{"a"}}, 9<<20), parquet.PageBufferSize(1<<30))
		}, "a page has 9437184 values", 32 << 20},
		"one text in a row": {func(path string) error {
			return parquet.WriteFile(path, []lists{{slices.Repeat([]string{long[:10<<10]}, 2000)}})
		}, "row 1: column \"words\": the row has more than 16777216 bytes", 128 << 20},
		"a row of many values": {func(path string) error {
			return parquet.WriteFile(path, []lists{{slices.Repeat([]string{"a"}, 5<<20)}}, parquet.PageBufferSize(1<<30))
		}, "a row has 5242880 values", 32 << 20},
	} {
		path := filepath.Join(t.TempDir(), "bomb.parquet")
		if err := tt.write(path); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Size() > 3<<20 {
			t.Fatalf("%s: the file has %d bytes, error %v", name, info.Size(), err)
		}
		runtime.GC()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		tasks, err := readAll(path)
		runtime.ReadMemStats(&after)
		if !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), tt.want) || len(tasks) > 0 {
			t.Errorf("%s: %d tasks, error %v", name, len(tasks), err)
		}
		if took := after.TotalAlloc - before.TotalAlloc; took > tt.most {
			t.Errorf("%s: %d bytes were allocated", name, took)
		}
	}
}

// Rows that are a few bytes of the file each are read one by one, and not all into memory.
func TestRowsThatExpand(t *testing.T) {
	if testing.Short() {
		t.Skip("long, and all in one goroutine")
	}
	type row struct {
		Word string `parquet:"word,dict"`
	}
	path := filepath.Join(t.TempDir(), "rows.parquet")
	if err := parquet.WriteFile(path, slices.Repeat([]row{{strings.Repeat("x", 10<<10)}}, 40_000)); err != nil {
		t.Fatal(err)
	}
	if tasks, err := readAll(path); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "too much to read into memory at once") || len(tasks) > 0 {
		t.Errorf("%d tasks, error %v", len(tasks), err)
	}
	r, err := dataset.Open(path, dataset.Options{})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range r.Records() {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	if err := r.Close(); err != nil || n != 40_000 {
		t.Errorf("%d rows, error %v", n, err)
	}
}

// Pages of many rows, with dictionaries and in every compression, are read as before.
func TestManyPages(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and all in one goroutine")
	}
	type row struct {
		ID   int64  `parquet:"id"`
		Word string `parquet:"word,dict,snappy"`
		Text string `parquet:"text,gzip"`
		Zstd string `parquet:"zstd,zstd"`
		LZ4  string `parquet:"lz4,lz4"`
		Br   string `parquet:"br,brotli"`
	}
	rows := make([]row, 20_000)
	for i := range rows {
		rows[i] = row{int64(i), []string{"one", "two"}[i%2], strings.Repeat("x", i%100), "a", "b", strings.Repeat("yz", i%10)}
	}
	for version := 1; version <= 2; version++ {
		path := filepath.Join(t.TempDir(), "many.parquet")
		if err := parquet.WriteFile(path, rows, parquet.PageBufferSize(4<<10), parquet.MaxRowsPerRowGroup(3000), parquet.DataPageVersion(version)); err != nil {
			t.Fatal(err)
		}
		tasks, err := readAll(path)
		if err != nil || len(tasks) != len(rows) {
			t.Errorf("version %d: %d tasks, error %v", version, len(tasks), err)
		}
	}
}

// testdata/empty_pages.parquet was written by pyarrow 26.0.1 with data pages of version 2 that should have a byte: its row groups begin with
// a page without values.
func TestEmptyPages(t *testing.T) {
	t.Parallel()
	tasks, err := readAll("testdata/empty_pages.parquet")
	if got := fmt.Sprintf("%s", tasks); err != nil || got != `[{"a":[]} {"a":[1,2]} {"a":[]}]` {
		t.Errorf("got %s and %v", got, err)
	}
}

// testdata/arrow.parquet was written by pyarrow 26.0.1 with LZ4 and data pages of version 2, which have booleans in runs.
func TestPagesOfArrow(t *testing.T) {
	t.Parallel()
	tasks, err := readAll("testdata/arrow.parquet")
	if err != nil || len(tasks) != 100 {
		t.Fatalf("%d tasks, error %v", len(tasks), err)
	}
	ok := func(i int) string {
		if i%7 == 3 {
			return "null"
		}
		return strconv.FormatBool(i*i%11 < 6)
	}
	for i, task := range tasks {
		var flags []string
		for j := range i % 4 {
			flags = append(flags, ok(i+j))
		}
		n := uint64(i) * 0x9E3779B97F4A7C15 << 1 >> 1
		want := fmt.Sprintf(`{"n":%d,"ok":%s,"flags":[%s]}`, n, ok(i), strings.Join(flags, ","))
		if string(task) != want {
			t.Errorf("row %d: %s, want %s", i, task, want)
		}
	}
}

// LZ4 pages that are larger than what is in them are read as they are.
func TestIncompressible(t *testing.T) {
	t.Parallel()
	type row struct {
		N int64 `parquet:"n,optional,lz4"`
	}
	rows, random := make([]row, 1500), rand.New(rand.NewPCG(1, 2))
	for i := range rows {
		rows[i].N = 1 + random.Int64N(math.MaxInt64)
	}
	for version := 1; version <= 2; version++ {
		path := filepath.Join(t.TempDir(), "numbers.parquet")
		if err := parquet.WriteFile(path, rows, parquet.DataPageVersion(version)); err != nil {
			t.Fatal(err)
		}
		tasks, err := readAll(path)
		if err != nil || len(tasks) != len(rows) {
			t.Fatalf("version %d: %d tasks, error %v", version, len(tasks), err)
		}
		for i, task := range tasks {
			if want := fmt.Sprintf(`{"n":%d}`, rows[i].N); string(task) != want {
				t.Fatalf("version %d, row %d: %s, want %s", version, i, task, want)
			}
		}
	}
}

// A page that is not the one that was written is refused.
func TestPageChecksum(t *testing.T) {
	t.Parallel()
	type row struct {
		Text string `parquet:"text"`
	}
	path := filepath.Join(t.TempDir(), "changed.parquet")
	if err := parquet.WriteFile(path, []row{{"a first text"}, {"a second text"}}); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, bytes.Replace(data, []byte("a first texta"), []byte("a worst texta"), 1), 0o600); err != nil {
		t.Fatal(err)
	}
	if tasks, err := readAll(path); !errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), "the checksum of a page is wrong") || len(tasks) > 0 {
		t.Errorf("%d tasks, error %v", len(tasks), err)
	}
}

func readAll(path string) (tasks agl.Tasks, err error) {
	r, err := dataset.Open(path, dataset.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return r.Tasks()
}

// A scale is the number of digits behind the point. Without a limit a small file could take all memory, and a negative one
// gives wrong numbers.
func TestDecimalScale(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		scale      int
		want, fail string
	}{{18, `{"n":-0.000000000000000001}`, ""}, {-1, "", "scale -1"}, {math.MaxInt32, "", "row has more than"}} {
		schema := parquet.NewSchema("row", parquet.Group{"n": parquet.Decimal(tt.scale, 18, parquet.Int64Type)})
		var file bytes.Buffer
		w := parquet.NewGenericWriter[any](&file, schema)
		if _, err := w.WriteRows([]parquet.Row{{parquet.Int64Value(-1).Level(0, 0, 0)}}); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), "decimal.parquet")
		if err := os.WriteFile(path, file.Bytes(), 0o600); err != nil {
			t.Fatal(err)
		}
		tasks, err := readAll(path)
		switch {
		case tt.fail != "" && (!errors.Is(err, agl.ErrInvalid) || !strings.Contains(err.Error(), tt.fail)):
			t.Errorf("scale %d: %d tasks, error %v", tt.scale, len(tasks), err)
		case tt.fail == "" && (err != nil || len(tasks) != 1 || string(tasks[0]) != tt.want):
			t.Errorf("scale %d: %s, error %v", tt.scale, tasks, err)
		}
	}
}
