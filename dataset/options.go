package dataset

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agl-go/agl"
)

// Format is the format of a task file.
type Format string

// The formats. FormatAuto derives the format from the file's name: .jsonl and .ndjson, .csv, and .parquet.
const (
	FormatAuto    Format = ""
	FormatJSONL   Format = "jsonl"
	FormatCSV     Format = "csv"
	FormatParquet Format = "parquet"
)

// Type is the type of the values in a CSV column.
type Type string

// The types. A text that does not fit the type of its column is an error. An empty text is null, except for TypeString.
const (
	TypeString Type = "string" // the text as it is
	TypeNumber Type = "number" // a JSON number; keeps its digits
	TypeBool   Type = "bool"   // true or false, in any case
	TypeJSON   Type = "json"   // one JSON value
)

// Column is a column of a file, or a member of the objects of a JSONL file, that becomes a member of the task.
type Column struct {
	Name string
	As   string // the member's name in the task; empty is Name
}

// Options say how to read a task file. The zero value reads all columns, in the format that the file's name says.
type Options struct {
	// Format of the file.
	Format Format
	// Columns are the members of a task, in order. Nil is all columns under their own names, in the order of the file.
	Columns []Column
	// Types are the types of CSV columns, by their names in the file. A column that is not listed is a string. Other
	// formats define types themselves, so Types must be empty.
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
		return agl.Errorf(agl.CodeInvalid, "dataset: %s: the name does not say the format, must end in .jsonl, .ndjson, .csv or .parquet", path)
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
		return agl.Errorf(agl.CodeInvalid, "dataset: Types: must be empty for a %s file, which defines its types itself", o.Format)
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

// source is an open task file.
type source struct {
	path    string
	file    *os.File
	options Options
}

// columns returns the columns that become members of a task, and the index of each in names, the columns of the file.
func (s *source) columns(names []string) (wanted []Column, index []int, err error) {
	wanted = s.options.Columns
	if wanted == nil {
		for _, name := range names {
			wanted = append(wanted, Column{Name: name, As: name})
		}
	}
	for _, c := range wanted {
		i := slices.Index(names, c.Name)
		if i < 0 {
			return nil, nil, s.errNoColumn(c.Name, names)
		}
		index = append(index, i)
	}
	return wanted, index, nil
}

func (s *source) errNoColumn(name string, names []string) error {
	return agl.Errorf(agl.CodeInvalid, "%s: there is no column %q, only %q", s.path, name, names)
}

// excerpt quotes the beginning of a value for an error.
func excerpt(b []byte) string {
	const most = 40
	if len(b) <= most {
		return fmt.Sprintf("%q", b)
	}
	return fmt.Sprintf("%q…", b[:most])
}
