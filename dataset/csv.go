package dataset

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// csvColumn is a column of the file that becomes a member of the task.
type csvColumn struct {
	index    int
	name, as string
	kind     Type
}

func (s *source) readCSV(yield func(jsontext.Value, error) bool) {
	in := csv.NewReader(skipByteOrderMark(s.file))
	in.ReuseRecord = true
	header, err := in.Read()
	switch {
	case errors.Is(err, io.EOF):
		return
	case err != nil:
		yield(nil, s.errCSV(err))
		return
	}
	columns, err := s.csvColumns(slices.Clone(header))
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
			yield(nil, s.errCSV(err))
			return
		}
		o := rawjson.NewObject(nil)
		for _, c := range columns {
			o.AnyKey(c.as)
			if o, err = c.append(o, fields[c.index]); err != nil {
				line, _ := in.FieldPos(c.index)
				yield(nil, agl.Errorf(agl.CodeInvalid, "%s:%d: column %q: %w", s.path, line, c.name, err))
				return
			}
		}
		if !yield(o.End(), nil) {
			return
		}
	}
}

// skipByteOrderMark returns a reader that skips the byte order mark at the beginning of in, if there is one.
func skipByteOrderMark(in io.Reader) io.Reader {
	const mark = "\xef\xbb\xbf"
	buffered := bufio.NewReader(in)
	// The next read returns the error of Peek again.
	if head, _ := buffered.Peek(len(mark)); string(head) == mark {
		_, _ = buffered.Discard(len(mark))
	}
	return buffered
}

// csvColumns finds the columns of the task in the header.
func (s *source) csvColumns(header []string) ([]csvColumn, error) {
	if len(header) == 1 && strings.ContainsAny(header[0], ";\t") {
		return nil, agl.Errorf(agl.CodeInvalid, "%s:1: the only column is named %q; columns are separated by commas", s.path, header[0])
	}
	at := map[string]int{}
	for i, name := range header {
		switch _, taken := at[name]; {
		case name == "":
			return nil, agl.Errorf(agl.CodeInvalid, "%s:1: column %d has no name; the first line names the columns", s.path, i+1)
		case !utf8.ValidString(name):
			return nil, agl.Errorf(agl.CodeInvalid, "%s:1: the name of column %d is not UTF-8, got %q", s.path, i+1, name)
		case taken:
			return nil, agl.Errorf(agl.CodeInvalid, "%s:1: column %d is named %q, as column %d is", s.path, i+1, name, at[name]+1)
		}
		at[name] = i
	}
	for name := range s.options.Types {
		if _, ok := at[name]; !ok {
			return nil, s.errNoColumn(name, header)
		}
	}
	wanted, index, err := s.columns(header)
	if err != nil {
		return nil, err
	}
	columns := make([]csvColumn, len(wanted))
	for i, c := range wanted {
		columns[i] = csvColumn{index: index[i], name: c.Name, as: c.As, kind: s.options.Types[c.Name]}
	}
	return columns, nil
}

// errCSV adds the file and the line to an error of the CSV reader.
func (s *source) errCSV(err error) error {
	parse, ok := errors.AsType[*csv.ParseError](err)
	switch {
	case !ok:
		return fmt.Errorf("%s: read: %w", s.path, err)
	case errors.Is(err, csv.ErrFieldCount):
		return agl.Errorf(agl.CodeInvalid, "%s:%d: the line does not have as many columns as the first one", s.path, parse.Line)
	default:
		return agl.Errorf(agl.CodeInvalid, "%s:%d: column %d: not valid CSV: %w", s.path, parse.Line, parse.Column, parse.Err)
	}
}

// append appends a text as a value of the column's type.
func (c csvColumn) append(dst []byte, text string) ([]byte, error) {
	if !utf8.ValidString(text) {
		return nil, fmt.Errorf("got %s, which is not UTF-8", excerpt([]byte(text)))
	}
	if c.kind == TypeString || c.kind == "" {
		return rawjson.AppendString(dst, text), nil
	}
	text = strings.TrimSpace(text)
	if text == "" {
		return append(dst, "null"...), nil
	}
	value := jsontext.Value(text)
	switch c.kind {
	case TypeNumber:
		if value.Kind() != '0' || !value.IsValid() {
			return nil, fmt.Errorf("got %s, must be a number", excerpt(value))
		}
	case TypeBool:
		if text = strings.ToLower(text); text != "true" && text != "false" {
			return nil, fmt.Errorf("got %s, must be true or false", excerpt([]byte(text)))
		}
	case TypeJSON:
		if !value.IsValid() {
			return nil, fmt.Errorf("got %s, must be one JSON value", excerpt(value))
		}
	case TypeString:
	}
	return append(dst, text...), nil
}
