package dataset

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// csvColumn is a column that becomes a member.
type csvColumn struct {
	index    int
	name, as string
	kind     Type
}

func (r *Reader) csv(yield func(jsontext.Value, error) bool) {
	in := csv.NewReader(skipMark(r.file))
	in.ReuseRecord = true
	header, err := in.Read()
	switch {
	case errors.Is(err, io.EOF):
		return
	case err != nil:
		yield(nil, r.errCSV(err))
		return
	}
	columns, err := r.csvColumns(slices.Clone(header))
	if err != nil {
		yield(nil, err)
		return
	}
	for {
		fields, err := in.Read()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			yield(nil, r.errCSV(err))
			return
		}
		var out bytes.Buffer
		object := newObject(&out)
		for _, c := range columns {
			object.name(c.as)
			if err := c.write(&out, fields[c.index]); err != nil {
				line, _ := in.FieldPos(c.index)
				yield(nil, agl.Errorf(agl.CodeInvalid, "%s:%d: column %q: %w", r.path, line, c.name, err))
				return
			}
		}
		object.end()
		if !yield(out.Bytes(), nil) {
			return
		}
	}
}

// skipMark reads on after a byte order mark, if there is one.
func skipMark(in io.Reader) io.Reader {
	const mark = "\xef\xbb\xbf"
	head := make([]byte, len(mark))
	n, err := io.ReadFull(in, head)
	head = bytes.TrimPrefix(head[:n], []byte(mark))
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		return io.MultiReader(bytes.NewReader(head), failing{err})
	}
	return io.MultiReader(bytes.NewReader(head), in)
}

// failing is a reader that has failed.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// csvColumns finds the columns of the task in the first line.
func (r *Reader) csvColumns(header []string) ([]csvColumn, error) {
	at := map[string]int{}
	for i, name := range header {
		switch _, taken := at[name]; {
		case name == "":
			return nil, agl.Errorf(agl.CodeInvalid, "%s:1: column %d has no name; the first line names the columns", r.path, i+1)
		case !utf8.ValidString(name):
			return nil, agl.Errorf(agl.CodeInvalid, "%s:1: the name of column %d is not UTF-8, got %q", r.path, i+1, name)
		case taken:
			return nil, agl.Errorf(agl.CodeInvalid, "%s:1: column %d is named %q, as column %d is", r.path, i+1, name, at[name]+1)
		}
		at[name] = i
	}
	for name := range r.options.Types {
		if _, ok := at[name]; !ok {
			return nil, r.errNoColumn(name, header)
		}
	}
	wanted := r.options.Columns
	if wanted == nil {
		for _, name := range header {
			wanted = append(wanted, Column{Name: name, As: name})
		}
	}
	var columns []csvColumn
	for _, c := range wanted {
		i, ok := at[c.Name]
		if !ok {
			return nil, r.errNoColumn(c.Name, header)
		}
		columns = append(columns, csvColumn{index: i, name: c.Name, as: c.As, kind: r.options.Types[c.Name]})
	}
	return columns, nil
}

func (r *Reader) errNoColumn(name string, has []string) error {
	return agl.Errorf(agl.CodeInvalid, "%s: there is no column %q, only %q", r.path, name, has)
}

// errCSV says at which line a file is not CSV.
func (r *Reader) errCSV(err error) error {
	parse, ok := errors.AsType[*csv.ParseError](err)
	switch {
	case !ok:
		return fmt.Errorf("%s: read: %w", r.path, err)
	case errors.Is(err, csv.ErrFieldCount):
		return agl.Errorf(agl.CodeInvalid, "%s:%d: the line does not have as many columns as the first one", r.path, parse.Line)
	default:
		return agl.Errorf(agl.CodeInvalid, "%s:%d: column %d: not valid CSV: %w", r.path, parse.Line, parse.Column, parse.Err)
	}
}

// write writes a text as a value of the column's type.
func (c csvColumn) write(out *bytes.Buffer, text string) error {
	if !utf8.ValidString(text) {
		return fmt.Errorf("got %s, which is not UTF-8", excerpt([]byte(text)))
	}
	if c.kind == TypeString || c.kind == "" {
		writeString(out, text)
		return nil
	}
	text = strings.TrimSpace(text)
	if text == "" {
		out.WriteString("null")
		return nil
	}
	switch c.kind {
	case TypeNumber:
		if value := jsontext.Value(text); value.Kind() != '0' || !value.IsValid() {
			return fmt.Errorf("got %s, must be a number", excerpt([]byte(text)))
		}
	case TypeBool:
		if text = strings.ToLower(text); text != "true" && text != "false" {
			return fmt.Errorf("got %s, must be true or false", excerpt([]byte(text)))
		}
	case TypeJSON:
		if !jsontext.Value(text).IsValid() {
			return fmt.Errorf("got %s, must be one JSON value", excerpt([]byte(text)))
		}
	case TypeString:
	}
	out.WriteString(text)
	return nil
}
