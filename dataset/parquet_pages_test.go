package dataset_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"slices"
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

// Pages of many rows, with dictionaries and in every compression, are read as before.
func TestManyPages(t *testing.T) {
	t.Parallel()
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

func readAll(path string) (tasks agl.Tasks, err error) {
	r, err := dataset.Open(path, dataset.Options{})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, r.Close()) }()
	return r.Tasks()
}
