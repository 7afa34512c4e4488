// Package rowfile writes rows to files: as JSON Lines or as Parquet.
package rowfile

import (
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/parquet-go/parquet-go"

	"github.com/agl-go/agl/adapter/rows"
)

// Writer writes rows to a file.
type Writer[T rows.Row] interface {
	Write(list []T) error
	// Close completes the file. It does not close the underlying writer.
	Close() error
}

// NewWriter returns a writer of a Parquet file, or of JSON Lines.
func NewWriter[T rows.Row](w io.Writer, asParquet bool) Writer[T] {
	if asParquet {
		return &parquetRows[T]{to: parquet.NewGenericWriter[T](w, parquet.Compression(&parquet.Zstd))}
	}
	return jsonRows[T]{to: w}
}

// jsonRows writes JSON Lines.
type jsonRows[T rows.Row] struct{ to io.Writer }

func (w jsonRows[T]) Write(list []T) error {
	for i := range list {
		line, err := json.Marshal(&list[i])
		if err != nil {
			return fmt.Errorf("write a row: %w", err)
		}
		if _, err := w.to.Write(append(line, '\n')); err != nil {
			return err
		}
	}
	return nil
}

func (jsonRows[T]) Close() error { return nil }

// groupBytes is about how large a row group is. The writer keeps one in memory.
const groupBytes = 64 << 20

// parquetRows writes a Parquet file.
type parquetRows[T rows.Row] struct {
	to      *parquet.GenericWriter[T]
	pending int
}

func (w *parquetRows[T]) Write(list []T) error {
	if len(list) == 0 {
		return nil
	}
	if _, err := w.to.Write(list); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	for i := range list {
		w.pending += list[i].Size()
	}
	if w.pending < groupBytes {
		return nil
	}
	w.pending = 0
	if err := w.to.Flush(); err != nil {
		return fmt.Errorf("write a row group: %w", err)
	}
	return nil
}

func (w *parquetRows[T]) Close() error { return w.to.Close() }
