package dataset_test

import (
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/parquet-go/parquet-go"

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

// Pages of many rows, with dictionaries and in every compression, are read as before.
func TestManyPages(t *testing.T) {
	t.Parallel()
	type row struct {
		ID   int64  `parquet:"id"`
		Word string `parquet:"word,dict,snappy"`
		Text string `parquet:"text,gzip"`
	}
	rows := make([]row, 20_000)
	for i := range rows {
		rows[i] = row{int64(i), []string{"one", "two"}[i%2], strings.Repeat("x", i%100)}
	}
	path := filepath.Join(t.TempDir(), "many.parquet")
	if err := parquet.WriteFile(path, rows, parquet.PageBufferSize(4<<10), parquet.MaxRowsPerRowGroup(3000)); err != nil {
		t.Fatal(err)
	}
	tasks, err := readAll(path)
	if err != nil || len(tasks) != len(rows) {
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
