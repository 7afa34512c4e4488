package dataset

import (
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// Reader reads the tasks of one file. Only one goroutine may use it at a time.
type Reader struct{ source source }

// Open opens the task file at path. It does not read the file yet. A mistake in the options is agl.ErrInvalid, as is a
// folder or a pipe; a file that cannot be opened is the error of package os.
func Open(path string, options Options) (*Reader, error) {
	options = options.withDefaults(path)
	if err := options.validate(path); err != nil {
		return nil, err
	}
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() { // it is read more than once
		return nil, agl.Errorf(agl.CodeInvalid, "%s: got %s, must be a regular file", path, kindOf(info.Mode()))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("dataset: %w", err) // err says that it was to be opened
	}
	return &Reader{source{path: path, file: f, options: options}}, nil
}

// kindOf names what is no regular file.
func kindOf(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "a folder"
	case mode&fs.ModeNamedPipe != 0:
		return "a pipe"
	default:
		return "a device or a socket"
	}
}

// Close closes the file.
func (r *Reader) Close() error { return r.source.file.Close() }

// Records yields the tasks one by one, from the first, so a file may be larger than memory. It ends with the first
// error, which it yields: agl.ErrInvalid with a message "path:line: what is wrong", or "path: row 3: …", counted from
// 1, for a Parquet file. The caller owns the values.
//
// A row of a CSV or Parquet file becomes an object. In a CSV file the first line names the columns. Line ends within
// a CSV text become \n.
//
// Parquet values become JSON as follows: integers and decimals exactly; floats that JSON cannot represent as the
// string NaN, Infinity or -Infinity; text, enums and UUIDs as strings, JSON columns as their value; dates as
// 2006-01-02, times of day as 15:04:05.999999999; timestamps as RFC 3339 in UTC, local ones without a zone; bytes
// without a type as base64. Optional columns may be null, lists and repeated columns are arrays, maps are objects.
func (r *Reader) Records() iter.Seq2[jsontext.Value, error] {
	return func(yield func(jsontext.Value, error) bool) {
		s := &r.source
		if _, err := s.file.Seek(0, io.SeekStart); err != nil {
			yield(nil, fmt.Errorf("read dataset: %w", err))
			return
		}
		switch s.options.Format {
		case FormatCSV:
			s.readCSV(yield)
		case FormatParquet:
			s.readParquet(yield)
		case FormatJSONL, FormatAuto:
			s.jsonl(s.file)(yield)
		}
	}
}

// Tasks reads the whole file. A file without a task is agl.ErrInvalid and [ErrEmpty]. A Parquet file that expands to
// more than 100 times its size plus 256 MiB is agl.ErrInvalid, because its rows could take all memory; read it with
// [Reader.Records].
func (r *Reader) Tasks() (agl.Tasks, error) {
	info, err := r.source.file.Stat()
	if err != nil {
		return nil, fmt.Errorf("read dataset: %w", err)
	}
	const fixed, times = 256 << 20, 100
	most := fixed + times*info.Size()
	return collect(func(yield func(jsontext.Value, error) bool) {
		size := int64(0)
		for record, err := range r.Records() {
			if size += int64(len(record)); err == nil && size > most {
				err = agl.Errorf(agl.CodeInvalid, "%s: its rows have more than %d bytes, the file has %d: too much to read into memory at once", r.source.path, most, info.Size())
			}
			if !yield(record, err) || err != nil {
				return
			}
		}
	}, r.source.path)
}
