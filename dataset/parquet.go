package dataset

import (
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

const (
	// rowsAtOnce is the number of rows that are decoded together, fewer if they have more than valuesAtOnce values.
	rowsAtOnce   = 64
	valuesAtOnce = 1 << 20
)

// readParquet yields the rows, one row group after the other. The library panics on some damaged files; that must not
// end the program.
func (s *source) readParquet(yield func(jsontext.Value, error) bool) {
	row, yielding := 0, false
	defer func() {
		if cause := recover(); cause != nil {
			if yielding {
				panic(cause)
			}
			yield(nil, agl.Errorf(agl.CodeInvalid, "%s: row %d: not a valid Parquet file: %v", s.path, row+1, cause))
		}
	}()
	give := func(value jsontext.Value, err error) bool {
		yielding = true
		more := yield(value, err)
		yielding = false
		return more
	}
	file, plan, err := s.openParquet()
	if err != nil {
		give(nil, err)
		return
	}
	for _, group := range file.RowGroups() {
		for value, err := range groupRows(group, plan) {
			if err != nil {
				give(nil, agl.Errorf(agl.CodeInvalid, "%s: row %d: %w", s.path, row+1, err))
				return
			}
			row++
			if !give(value, nil) {
				return
			}
		}
	}
}

func (s *source) openParquet() (*parquet.File, *parquetPlan, error) {
	info, err := s.file.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("read dataset: %w", err)
	}
	file, longestRow, err := openPlain(s.file, info.Size())
	if err != nil {
		return nil, nil, agl.Errorf(agl.CodeInvalid, "%s: not a valid Parquet file: %w", s.path, err)
	}
	var names []string
	for _, c := range file.Root().Columns() {
		names = append(names, c.Name())
	}
	wanted, index, err := s.columns(names)
	if err != nil {
		return nil, nil, err
	}
	halves := halfPrecision(file)
	plan := &parquetPlan{batch: max(1, min(rowsAtOnce, int(valuesAtOnce/max(longestRow, 1))))}
	for i, c := range wanted {
		plan.fields = append(plan.fields, newParquetField(file.Root().Columns()[index[i]], c.As, 0, 0, halves))
	}
	return file, plan, nil
}

// groupRows yields the rows of a row group as objects.
func groupRows(group parquet.RowGroup, plan *parquetPlan) func(yield func(jsontext.Value, error) bool) {
	return func(yield func(jsontext.Value, error) bool) {
		rows := group.Rows()
		defer rows.Close()
		batch := make([]parquet.Row, plan.batch)
		leaves := make([][]parquet.Value, len(group.ColumnChunks()))
		for {
			n, err := rows.ReadRows(batch)
			for _, row := range batch[:n] {
				for i := range leaves {
					leaves[i] = nil
				}
				row.Range(func(column int, values []parquet.Value) bool {
					leaves[column] = values
					return true
				})
				value, err := plan.object(leaves)
				if !yield(value, err) || err != nil {
					return
				}
			}
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(nil, err)
				return
			}
		}
	}
}

// parquetPlan says how the values of a row become an object.
type parquetPlan struct {
	fields []*parquetField
	batch  int // rows that are decoded together
}

func (p *parquetPlan) object(leaves [][]parquet.Value) (jsontext.Value, error) {
	return appendFields(nil, p.fields, leaves, "column %q: %w")
}

// parquetField is a node of the schema. A value is present if its definition level is at least that of the field. An
// element continues the same array if its repetition level is that of the field (Melnik et al., Dremel, VLDB 2010).
type parquetField struct {
	name               string
	optional, repeated bool
	definition         int // the lowest level at which the field is present
	repetition         int // the level of its elements, if repeated
	leaf               int // index of the first column below it
	last               int // index of the last column; less than leaf if there is none
	scalar             appendScalar
	children           []*parquetField
	shape              parquetShape
}

// parquetShape says what a group becomes.
type parquetShape int

const (
	shapeObject parquetShape = iota
	shapeList                // of the group's only child's elements
	shapeMap                 // of the group's only child's entries
)

// halfPrecision reports which of the columns hold half-precision numbers. The type of a [parquet.Column] does not say it.
func halfPrecision(file *parquet.File) []bool {
	var halves []bool
	for _, element := range file.Metadata().Schema {
		if element.Type.Valid { // a column, not a group
			_, half := element.LogicalType.Value.(*format.Float16Type)
			halves = append(halves, half)
		}
	}
	return halves
}

// newParquetField plans a column. definition and repetition are the levels of the node above it.
func newParquetField(c *parquet.Column, as string, definition, repetition int, halves []bool) *parquetField {
	f := &parquetField{name: as, optional: c.Optional(), repeated: c.Repeated()}
	if f.optional || f.repeated {
		definition++
	}
	if f.repeated {
		repetition++
	}
	f.definition, f.repetition = definition, repetition
	if c.Leaf() {
		f.leaf, f.last = c.Index(), c.Index()
		if f.scalar = scalarOf(c); halves[f.leaf] {
			f.scalar = appendHalf
		}
		return f
	}
	for _, child := range c.Columns() {
		f.children = append(f.children, newParquetField(child, child.Name(), definition, repetition, halves))
	}
	if len(f.children) > 0 {
		f.leaf, f.last = f.children[0].leaf, f.children[len(f.children)-1].last
	} else {
		f.leaf, f.last = 0, -1
	}
	f.shape = shapeOf(c, f)
	return f
}

// shapeOf recognises lists and maps, and removes the wrapper around the elements of a list, by the rules of
// LogicalTypes.md in apache/parquet-format, including the rules for older writers.
func shapeOf(c *parquet.Column, f *parquetField) parquetShape {
	logical := c.Type().LogicalType()
	if logical == nil || len(f.children) != 1 || !f.children[0].repeated {
		return shapeObject
	}
	inner := f.children[0]
	switch logical.Value.(type) {
	case *format.ListType:
		if len(inner.children) == 1 && !inner.children[0].repeated && inner.name != "array" && inner.name != c.Name()+"_tuple" {
			inner.shape = shapeList
		}
		return shapeList
	case *format.MapType:
		if len(inner.children) == 2 && inner.children[0].scalar != nil && !inner.children[0].repeated {
			return shapeMap
		}
	}
	return shapeObject
}

// append appends the field's value, and consumes the column values that it consists of.
func (f *parquetField) append(dst []byte, leaves [][]parquet.Value) ([]byte, error) {
	if f.repeated {
		return f.elements(dst, leaves, '[', ']', f.value)
	}
	if f.optional {
		present, err := f.present(leaves)
		if err != nil {
			return nil, err
		}
		if !present {
			return append(dst, "null"...), f.skip(leaves)
		}
	}
	return f.value(dst, leaves)
}

var errLongRow = fmt.Errorf("the row has more than %d bytes", MaxLine)

var errTooFewValues = errors.New("the row has too few values")

// present reports whether the next value belongs to the field.
func (f *parquetField) present(leaves [][]parquet.Value) (bool, error) {
	if f.last < f.leaf {
		return true, nil // a group without columns
	}
	if len(leaves[f.leaf]) == 0 {
		return false, errTooFewValues
	}
	return leaves[f.leaf][0].DefinitionLevel() >= f.definition, nil
}

// skip consumes the nulls that stand for an absent field.
func (f *parquetField) skip(leaves [][]parquet.Value) error {
	for i := f.leaf; i <= f.last; i++ {
		if len(leaves[i]) == 0 {
			return errTooFewValues
		}
		leaves[i] = leaves[i][1:]
	}
	return nil
}

// elements appends the elements of a repeated field between two brackets.
func (f *parquetField) elements(dst []byte, leaves [][]parquet.Value, left, right byte,
	one func(dst []byte, leaves [][]parquet.Value) ([]byte, error),
) ([]byte, error) {
	dst = append(dst, left)
	present, err := f.present(leaves)
	if err != nil {
		return nil, err
	}
	if !present || f.last < f.leaf {
		return append(dst, right), f.skip(leaves)
	}
	for n := 0; ; n++ {
		if n > 0 {
			next := leaves[f.leaf]
			if len(next) == 0 || next[0].RepetitionLevel() != f.repetition {
				break
			}
			dst = append(dst, ',')
		}
		if dst, err = one(dst, leaves); err != nil {
			return nil, err
		}
	}
	return append(dst, right), nil
}

// value appends a field that is present.
func (f *parquetField) value(dst []byte, leaves [][]parquet.Value) ([]byte, error) {
	switch {
	case f.scalar != nil:
		values := leaves[f.leaf]
		if len(values) == 0 {
			return nil, errTooFewValues
		}
		leaves[f.leaf] = values[1:]
		return f.appendScalar(dst, values[0])
	case f.shape == shapeList:
		return f.children[0].append(dst, leaves)
	case f.shape == shapeMap:
		entries := f.children[0]
		return entries.elements(dst, leaves, '{', '}', entries.entry)
	}
	return appendFields(dst, f.children, leaves, "%s: %w")
}

// appendFields appends an object of fields. The format is that of an error, with the name of its field.
func appendFields(dst []byte, fields []*parquetField, leaves [][]parquet.Value, format string) (_ []byte, err error) {
	o := rawjson.NewObject(dst)
	for _, f := range fields {
		o.AnyKey(f.name)
		if o, err = f.append(o, leaves); err != nil {
			return nil, fmt.Errorf(format, f.name, err)
		}
	}
	return o.End(), nil
}

// appendScalar appends one value. It bounds the row, because a row of equal values takes hardly any room in the file.
func (f *parquetField) appendScalar(dst []byte, v parquet.Value) ([]byte, error) {
	if k := v.Kind(); (k == parquet.ByteArray || k == parquet.FixedLenByteArray) && len(dst)+len(v.ByteArray()) > MaxLine {
		return nil, errLongRow
	}
	dst, err := f.scalar(dst, v)
	if err == nil && len(dst) > MaxLine {
		err = errLongRow
	}
	return dst, err
}

// entry appends one entry of a map. A key that is not a string becomes one.
func (f *parquetField) entry(dst []byte, leaves [][]parquet.Value) ([]byte, error) {
	key, err := f.children[0].append(nil, leaves)
	if err != nil {
		return nil, err
	}
	if len(key) > 0 && key[0] == '"' {
		dst = append(dst, key...)
	} else {
		dst = rawjson.AppendString(dst, string(key))
	}
	return f.children[1].append(append(dst, ':'), leaves)
}
