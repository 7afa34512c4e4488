package dataset

import (
	"bytes"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// Format is how a task file is written.
type Format string

// The formats. FormatAuto goes by the file's name: .jsonl and .ndjson, .csv, and
// .parquet.
const (
	FormatAuto    Format = ""
	FormatJSONL   Format = "jsonl"
	FormatCSV     Format = "csv"
	FormatParquet Format = "parquet"
)

// Type is what the text of a CSV column stands for.
type Type string

// The types. A text that is not of its column's type is an error; an empty text
// is null for every type but TypeString.
const (
	TypeString Type = "string" // the text as it is
	TypeNumber Type = "number" // a JSON number, kept to the digit
	TypeBool   Type = "bool"   // true or false, in any case
	TypeJSON   Type = "json"   // one JSON value
)

// Column is a column of a file, or a member of a JSONL file's objects, that
// becomes a member of the task.
type Column struct {
	Name string
	As   string // the member's name in the task; "" is Name
}

// Options say how to read a task file. The zero value takes every column as it
// is.
type Options struct {
	// Format is that of the file.
	Format Format
	// Columns are the task's members, in this order. Nil is every column under its
	// own name, in the file's order.
	Columns []Column
	// Types are those of CSV columns, by the names in the file; a column that is
	// not there is a string. Other formats have types of their own and refuse any.
	Types map[string]Type
}

func (o Options) withDefaults(path string) Options {
	if o.Format == FormatAuto {
		switch strings.ToLower(filepath.Ext(path)) {
		case ".jsonl", ".ndjson":
			o.Format = FormatJSONL
		case ".csv":
			o.Format = FormatCSV
		case ".parquet":
			o.Format = FormatParquet
		}
	}
	o.Columns = slices.Clone(o.Columns)
	for i, c := range o.Columns {
		if c.As == "" {
			o.Columns[i].As = c.Name
		}
	}
	return o
}

func (o Options) validate(path string) error {
	switch o.Format {
	case FormatJSONL, FormatCSV, FormatParquet:
	case FormatAuto:
		return agl.Errorf(agl.CodeInvalid, "dataset: %s: the name does not tell the format, must end in .jsonl, .ndjson, .csv or .parquet", path)
	default:
		return agl.Errorf(agl.CodeInvalid, "dataset: Format: got %q, must be %s, %s or %s", o.Format, FormatJSONL, FormatCSV, FormatParquet)
	}
	taken := map[string]bool{}
	for i, c := range o.Columns {
		if c.Name == "" {
			return agl.Errorf(agl.CodeInvalid, "dataset: Columns[%d].Name: must not be empty", i)
		}
		if taken[c.As] {
			return agl.Errorf(agl.CodeInvalid, "dataset: Columns[%d].As: got %q a second time", i, c.As)
		}
		taken[c.As] = true
	}
	if len(o.Types) > 0 && o.Format != FormatCSV {
		return agl.Errorf(agl.CodeInvalid, "dataset: Types: a %s file has types of its own, must be empty", o.Format)
	}
	for name, t := range o.Types {
		switch t {
		case TypeString, TypeNumber, TypeBool, TypeJSON:
		default:
			return agl.Errorf(agl.CodeInvalid, "dataset: Types[%q]: got %q, must be %s, %s, %s or %s",
				name, t, TypeString, TypeNumber, TypeBool, TypeJSON)
		}
	}
	return nil
}

// Reader reads the tasks of one file. It is for one goroutine.
type Reader struct {
	path    string
	file    *os.File
	options Options
}

// Open opens the task file at path. The file's content is first looked at when
// it is read. Errors in the options are agl.ErrInvalid; a file that cannot be
// opened is the os package's error.
func Open(path string, options Options) (*Reader, error) {
	options = options.withDefaults(path)
	if err := options.validate(path); err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open dataset: %w", err)
	}
	return &Reader{path: path, file: f, options: options}, nil
}

// Close closes the file.
func (r *Reader) Close() error { return r.file.Close() }

// Records yields the tasks one by one, from the first, so that a file larger
// than memory can be gone through. It ends at the first error, which it yields:
// agl.ErrInvalid with a message "path:line: what is wrong" ("path: row 3: …",
// counted from 1, for a Parquet file). A value belongs to the receiver.
//
// A row of a CSV or Parquet file is an object. In a CSV file the first line names
// the columns. Line ends within a CSV text become \n.
//
// Parquet values become JSON as follows: integers and decimals exactly; a float
// that JSON cannot say is the string NaN, Infinity or -Infinity; text, enums and
// UUIDs are strings, JSON columns the value itself; dates are 2006-01-02, times
// of day 15:04:05.999999999; timestamps are RFC 3339 in UTC, local ones without a
// zone; bytes without a type are base64. Optional columns may be null, lists and
// repeated columns are arrays, maps are objects.
func (r *Reader) Records() iter.Seq2[jsontext.Value, error] {
	return func(yield func(jsontext.Value, error) bool) {
		if _, err := r.file.Seek(0, io.SeekStart); err != nil {
			yield(nil, fmt.Errorf("read dataset: %w", err))
			return
		}
		switch r.options.Format {
		case FormatCSV:
			r.csv(yield)
		case FormatParquet:
			r.parquet(yield)
		case FormatJSONL, FormatAuto:
			r.jsonl(yield)
		}
	}
}

// Tasks reads the whole file. A file without a task is agl.ErrInvalid and
// [ErrEmpty].
func (r *Reader) Tasks() (agl.Tasks, error) {
	var tasks agl.Tasks
	for task, err := range r.Records() {
		if err != nil {
			return nil, err
		}
		tasks = append(tasks, task)
	}
	if len(tasks) == 0 {
		return nil, agl.Errorf(agl.CodeInvalid, "%s: %w: it has no task", r.path, ErrEmpty)
	}
	return tasks, nil
}

func (r *Reader) jsonl(yield func(jsontext.Value, error) bool) {
	for line, err := range numberedLines(r.file, r.path) {
		if err == nil && r.options.Columns != nil {
			line.value, err = r.pick(line)
		}
		if !yield(line.value, err) || err != nil {
			return
		}
	}
}

// pick makes a task of some members of an object.
func (r *Reader) pick(line numbered) (jsontext.Value, error) {
	if line.value.Kind() != '{' {
		return nil, agl.Errorf(agl.CodeInvalid, "%s:%d: got %s, must be an object, as columns are picked out of it",
			r.path, line.number, excerpt(line.value))
	}
	var out bytes.Buffer
	object := newObject(&out)
	for _, c := range r.options.Columns {
		value, ok := rawjson.Get(line.value, c.Name)
		if !ok {
			return nil, agl.Errorf(agl.CodeInvalid, "%s:%d: the object has no member %q", r.path, line.number, c.Name)
		}
		object.name(c.As)
		out.Write(value)
	}
	object.end()
	return out.Bytes(), nil
}

// objectWriter writes a JSON object whose values its caller writes.
type objectWriter struct {
	to  *bytes.Buffer
	any bool
}

func newObject(to *bytes.Buffer) *objectWriter {
	to.WriteByte('{')
	return &objectWriter{to: to}
}

func (o *objectWriter) name(name string) {
	if o.any {
		o.to.WriteByte(',')
	}
	o.any = true
	writeString(o.to, name)
	o.to.WriteByte(':')
}

func (o *objectWriter) end() { o.to.WriteByte('}') }

// writeString writes a JSON string. What is not UTF-8 has been refused before,
// or becomes U+FFFD.
func writeString(to *bytes.Buffer, s string) {
	quoted, err := jsontext.AppendQuote(to.AvailableBuffer(), strings.ToValidUTF8(s, "\uFFFD"))
	if err != nil {
		panic(err) // a valid string has a quoted form
	}
	to.Write(quoted)
}
