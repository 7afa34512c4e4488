package rows

import (
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/parquet-go/parquet-go"
)

// Writer writes rows to a file.
type Writer[T Row] interface {
	Write(rows []T) error
	// Close completes the file. It does not close the underlying writer.
	Close() error
}

// NewWriter returns a writer of a Parquet file, or of JSON Lines.
func NewWriter[T Row](w io.Writer, asParquet bool) Writer[T] {
	if asParquet {
		return &parquetRows[T]{to: parquet.NewGenericWriter[T](w, parquet.Compression(&parquet.Zstd))}
	}
	return jsonRows[T]{to: w}
}

// jsonRows writes JSON Lines.
type jsonRows[T Row] struct{ to io.Writer }

func (w jsonRows[T]) Write(rows []T) error {
	for i := range rows {
		line, err := json.Marshal(&rows[i])
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
type parquetRows[T Row] struct {
	to      *parquet.GenericWriter[T]
	pending int
}

func (w *parquetRows[T]) Write(rows []T) error {
	if len(rows) == 0 {
		return nil
	}
	if _, err := w.to.Write(rows); err != nil {
		return fmt.Errorf("write rows: %w", err)
	}
	for i := range rows {
		w.pending += rows[i].size()
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
