package postgres

import (
	"encoding/binary"
	"math"

	"github.com/agl-go/agl"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5/pgtype"
)

// A batch goes to the server as a few statements whose parameters are arrays, one
// for each column. Both they and the results are in PostgreSQL's binary form,
// which is written and read here without a detour over reflection.

// column is an array parameter.
type column struct {
	buf []byte
	oid uint32
	n   int
}

// arrayHeader is the number of dimensions, a flag for nulls, the type, and the
// length and lower bound of the one dimension, 4 bytes each.
const arrayHeader = 20

func newColumn(oid uint32, rows, bytes int) *column {
	return &column{oid: oid, buf: make([]byte, arrayHeader, arrayHeader+rows*4+bytes)}
}

// idBytes is what an id takes at most as a rule.
const idBytes = 20

func textColumn(rows int) *column  { return newColumn(pgtype.TextOID, rows, rows*idBytes) }
func floatColumn(rows int) *column { return newColumn(pgtype.Float8OID, rows, rows*8) }
func int8Column(rows int) *column  { return newColumn(pgtype.Int8OID, rows, rows*8) }
func int4Column(rows int) *column  { return newColumn(pgtype.Int4OID, rows, rows*4) }
func boolColumn(rows int) *column  { return newColumn(pgtype.BoolOID, rows, rows) }
func bytesColumn(rows, bytes int) *column {
	return newColumn(pgtype.ByteaOID, rows, bytes)
}

// param is the finished array.
func (c *column) param() []byte {
	dimensions := uint32(1)
	if c.n == 0 {
		dimensions = 0
		c.buf = c.buf[:12]
	}
	binary.BigEndian.PutUint32(c.buf[0:], dimensions)
	binary.BigEndian.PutUint32(c.buf[8:], c.oid)
	if c.n > 0 {
		binary.BigEndian.PutUint32(c.buf[12:], uint32(c.n))
		binary.BigEndian.PutUint32(c.buf[16:], 1)
	}
	return c.buf
}

func (c *column) null() {
	c.n++
	c.buf[7] = 1
	c.buf = append(c.buf, 0xff, 0xff, 0xff, 0xff)
}

func (c *column) text(s string) {
	s = text(s)
	c.n++
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(len(s)))
	c.buf = append(c.buf, s...)
}

func (c *column) nullText(s agl.Null[string]) {
	if s.Valid {
		c.text(s.V)
	} else {
		c.null()
	}
}

// bytes adds a document, nil as null.
func (c *column) bytes(b []byte) {
	if b == nil {
		c.null()
		return
	}
	c.n++
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(len(b)))
	c.buf = append(c.buf, b...)
}

func (c *column) float(f float64) {
	c.n++
	c.buf = append(c.buf, 0, 0, 0, 8)
	c.buf = binary.BigEndian.AppendUint64(c.buf, math.Float64bits(f))
}

func (c *column) time(t agl.Null[agl.Timestamp]) {
	if t.Valid {
		c.float(float64(t.V))
	} else {
		c.null()
	}
}

func (c *column) int8(i int64) {
	c.n++
	c.buf = append(c.buf, 0, 0, 0, 8)
	c.buf = binary.BigEndian.AppendUint64(c.buf, uint64(i))
}

func (c *column) int4(i int) {
	c.n++
	c.buf = append(c.buf, 0, 0, 0, 4)
	c.buf = binary.BigEndian.AppendUint32(c.buf, uint32(int32(i)))
}

func (c *column) bool(b bool) {
	c.n++
	c.buf = append(c.buf, 0, 0, 0, 1, 0)
	if b {
		c.buf[len(c.buf)-1] = 1
	}
}

// textArray is a whole column of texts.
func textArray(list []string) []byte {
	c := textColumn(len(list))
	for _, s := range list {
		c.text(s)
	}
	return c.param()
}

// scalars as parameters
func textParam(s string) []byte { return []byte(text(s)) }

func int8Param(i int64) []byte { return binary.BigEndian.AppendUint64(nil, uint64(i)) }

func floatParam(f float64) []byte { return binary.BigEndian.AppendUint64(nil, math.Float64bits(f)) }

func boolParam(b bool) []byte {
	if b {
		return []byte{1}
	}
	return []byte{0}
}

// row reads the columns of a result one after the other. What it returns is not
// part of the connection's buffer.
type row struct {
	values [][]byte
	next   int
}

func (r *row) raw() []byte {
	v := r.values[r.next]
	r.next++
	return v
}

func (r *row) text() string { return untext(string(r.raw())) }

func (r *row) nullText() agl.Null[string] {
	v := r.raw()
	if v == nil {
		return agl.Null[string]{}
	}
	return agl.Some(untext(string(v)))
}

// json returns a copy of a document, nil for null.
func (r *row) json() jsontext.Value {
	v := r.raw()
	if v == nil {
		return nil
	}
	return append(make(jsontext.Value, 0, len(v)), v...)
}

func (r *row) float() float64 { return math.Float64frombits(binary.BigEndian.Uint64(r.raw())) }

func (r *row) time() agl.Timestamp { return agl.Timestamp(r.float()) }

func (r *row) nullTime() agl.Null[agl.Timestamp] {
	if r.values[r.next] == nil {
		r.next++
		return agl.Null[agl.Timestamp]{}
	}
	return agl.Some(r.time())
}

func (r *row) int8() int64 { return int64(binary.BigEndian.Uint64(r.raw())) }

func (r *row) nullInt8() agl.Null[int64] {
	if r.values[r.next] == nil {
		r.next++
		return agl.Null[int64]{}
	}
	return agl.Some(r.int8())
}

func (r *row) int4() int { return int(int32(binary.BigEndian.Uint32(r.raw()))) }

func (r *row) bool() bool { return r.raw()[0] != 0 }
