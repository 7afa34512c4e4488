package dataset

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/agl-go/agl"
)

// rowsAtOnce is how many rows are decoded together.
const rowsAtOnce = 64

// parquet yields the rows, row group by row group. The library panics at some
// broken files, which must not end the program.
func (r *Reader) parquet(yield func(jsontext.Value, error) bool) {
	row, yielding := 0, false
	defer func() {
		if cause := recover(); cause != nil {
			if yielding {
				panic(cause)
			}
			yield(nil, agl.Errorf(agl.CodeInvalid, "%s: row %d: not a valid Parquet file: %v", r.path, row+1, cause))
		}
	}()
	give := func(value jsontext.Value, err error) bool {
		yielding = true
		more := yield(value, err)
		yielding = false
		return more
	}
	file, plan, err := r.openParquet()
	if err != nil {
		give(nil, err)
		return
	}
	for _, group := range file.RowGroups() {
		for value, err := range groupRows(group, plan) {
			if err != nil {
				give(nil, agl.Errorf(agl.CodeInvalid, "%s: row %d: %w", r.path, row+1, err))
				return
			}
			row++
			if !give(value, nil) {
				return
			}
		}
	}
}

func (r *Reader) openParquet() (*parquet.File, *parquetPlan, error) {
	info, err := r.file.Stat()
	if err != nil {
		return nil, nil, fmt.Errorf("read dataset: %w", err)
	}
	file, err := parquet.OpenFile(r.file, info.Size(), parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, nil, agl.Errorf(agl.CodeInvalid, "%s: not a valid Parquet file: %w", r.path, err)
	}
	plan := &parquetPlan{}
	byName := map[string]*parquet.Column{}
	var names []string
	for _, c := range file.Root().Columns() {
		byName[c.Name()] = c
		names = append(names, c.Name())
	}
	wanted := r.options.Columns
	if wanted == nil {
		for _, name := range names {
			wanted = append(wanted, Column{Name: name, As: name})
		}
	}
	for _, c := range wanted {
		column, ok := byName[c.Name]
		if !ok {
			return nil, nil, r.errNoColumn(c.Name, names)
		}
		plan.fields = append(plan.fields, newParquetField(column, c.As, 0, 0))
	}
	return file, plan, nil
}

// groupRows yields the rows of a row group as objects.
func groupRows(group parquet.RowGroup, plan *parquetPlan) func(yield func(jsontext.Value, error) bool) {
	return func(yield func(jsontext.Value, error) bool) {
		rows := group.Rows()
		defer rows.Close()
		batch := make([]parquet.Row, rowsAtOnce)
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
type parquetPlan struct{ fields []*parquetField }

func (p *parquetPlan) object(leaves [][]parquet.Value) (jsontext.Value, error) {
	var out bytes.Buffer
	object := newObject(&out)
	for _, f := range p.fields {
		object.name(f.name)
		if err := f.write(&out, leaves); err != nil {
			return nil, fmt.Errorf("column %q: %w", f.name, err)
		}
	}
	object.end()
	return out.Bytes(), nil
}

// parquetField is a node of the schema. A value is present when its definition
// level reaches the field's; a value of an array goes on with the same array
// when its repetition level is the field's (Melnik et al., Dremel, VLDB 2010).
type parquetField struct {
	name               string
	optional, repeated bool
	definition         int // from which level on the field is there
	repetition         int // the level of its elements, if repeated
	leaf               int // the first column below it
	last               int // the last one
	scalar             scalarWriter
	children           []*parquetField
	shape              parquetShape
}

// parquetShape is what a group stands for.
type parquetShape int

const (
	shapeObject parquetShape = iota
	shapeList                // of the group's only child's elements
	shapeMap                 // of the group's only child's entries
)

// newParquetField plans a column that stands below these levels.
func newParquetField(c *parquet.Column, as string, definition, repetition int) *parquetField {
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
		f.scalar = newScalarWriter(c)
		return f
	}
	for _, child := range c.Columns() {
		f.children = append(f.children, newParquetField(child, child.Name(), definition, repetition))
	}
	if len(f.children) > 0 {
		f.leaf, f.last = f.children[0].leaf, f.children[len(f.children)-1].last
	} else {
		f.leaf, f.last = 0, -1
	}
	f.shape = shapeOf(c, f)
	return f
}

// shapeOf recognises lists and maps, and takes the wrapper off a list's elements
// (the rules of LogicalTypes.md in apache/parquet-format, older writers
// included).
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

// write writes the field's value and takes the values that it is made of.
func (f *parquetField) write(out *bytes.Buffer, leaves [][]parquet.Value) error {
	if f.repeated {
		return f.elements(out, leaves, '[', ']', func() error { return f.value(out, leaves) })
	}
	if f.optional {
		there, err := f.there(leaves)
		if err != nil {
			return err
		}
		if !there {
			out.WriteString("null")
			return f.skip(leaves)
		}
	}
	return f.value(out, leaves)
}

// there reports whether the next value is one of the field.
func (f *parquetField) there(leaves [][]parquet.Value) (bool, error) {
	if f.last < f.leaf {
		return true, nil // a group without columns
	}
	if len(leaves[f.leaf]) == 0 {
		return false, errors.New("the row has too few values")
	}
	return leaves[f.leaf][0].DefinitionLevel() >= f.definition, nil
}

// skip takes the nulls that stand for a field that is not there.
func (f *parquetField) skip(leaves [][]parquet.Value) error {
	for i := f.leaf; i <= f.last; i++ {
		if len(leaves[i]) == 0 {
			return errors.New("the row has too few values")
		}
		leaves[i] = leaves[i][1:]
	}
	return nil
}

// elements writes those of a repeated field between two brackets.
func (f *parquetField) elements(out *bytes.Buffer, leaves [][]parquet.Value, left, right byte, each func() error) error {
	out.WriteByte(left)
	there, err := f.there(leaves)
	if err != nil {
		return err
	}
	if !there || f.last < f.leaf {
		out.WriteByte(right)
		return f.skip(leaves)
	}
	for n := 0; ; n++ {
		if n > 0 {
			next := leaves[f.leaf]
			if len(next) == 0 || next[0].RepetitionLevel() != f.repetition {
				break
			}
			out.WriteByte(',')
		}
		if err := each(); err != nil {
			return err
		}
	}
	out.WriteByte(right)
	return nil
}

// value writes a field that is there.
func (f *parquetField) value(out *bytes.Buffer, leaves [][]parquet.Value) error {
	switch {
	case f.scalar != nil:
		values := leaves[f.leaf]
		if len(values) == 0 {
			return errors.New("the row has too few values")
		}
		leaves[f.leaf] = values[1:]
		return f.scalar(out, values[0])
	case f.shape == shapeList:
		return f.children[0].write(out, leaves)
	case f.shape == shapeMap:
		entries := f.children[0]
		return entries.elements(out, leaves, '{', '}', func() error { return entries.entry(out, leaves) })
	}
	object := newObject(out)
	for _, child := range f.children {
		object.name(child.name)
		if err := child.write(out, leaves); err != nil {
			return fmt.Errorf("%s: %w", child.name, err)
		}
	}
	object.end()
	return nil
}

// entry writes one entry of a map. A key that is no string becomes its text.
func (f *parquetField) entry(out *bytes.Buffer, leaves [][]parquet.Value) error {
	var key bytes.Buffer
	if err := f.children[0].write(&key, leaves); err != nil {
		return err
	}
	if text := key.Bytes(); len(text) > 0 && text[0] == '"' {
		out.Write(text)
	} else {
		writeString(out, key.String())
	}
	out.WriteByte(':')
	return f.children[1].write(out, leaves)
}
