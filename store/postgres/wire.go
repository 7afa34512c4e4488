package postgres

import (
	"encoding/binary"
	"math"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agl-go/agl"
)

// A batch goes to the server as a few statements whose arguments are arrays, one for
// each column. Arguments and results have PostgreSQL's binary form, which is written and
// read here: pgx would box every element.

// params holds the encoded arguments of one transaction. An argument is a part of its
// memory, which the next transaction reuses.
type params struct{ buf []byte }

// maxParams bounds the memory that is kept for the next transaction.
const maxParams = 1 << 20

func (p *params) reset() {
	if cap(p.buf) > maxParams {
		p.buf = nil
	}
	p.buf = p.buf[:0]
}

// from returns the argument that begins at start, where the buffer ended before.
func (p *params) from(start int) []byte { return p.buf[start:len(p.buf):len(p.buf)] }

func (p *params) text(s string) []byte {
	start := len(p.buf)
	p.buf = append(p.buf, text(s)...)
	return p.from(start)
}

func (p *params) int8(i int64) []byte {
	start := len(p.buf)
	p.buf = binary.BigEndian.AppendUint64(p.buf, uint64(i))
	return p.from(start)
}

func (p *params) float(f float64) []byte { return p.int8(int64(math.Float64bits(f))) }

func (p *params) bool(b bool) []byte {
	start := len(p.buf)
	p.buf = appendBool(p.buf, b)
	return p.from(start)
}

func appendBool(dst []byte, b bool) []byte {
	if b {
		return append(dst, 1)
	}
	return append(dst, 0)
}

// An array begins with the number of its dimensions, a flag for nulls, the type, and the
// length and lower bound of its one dimension, 4 bytes each. A null has this length.
const nullLength = math.MaxUint32

// array writes one column of rows as an array. element appends the value of a row and
// returns false for null.
func array[R any](p *params, oid uint32, rows []R, element func(dst []byte, r *R) ([]byte, bool)) []byte {
	start := len(p.buf)
	dst := p.buf
	if len(rows) == 0 { // no dimensions
		dst = binary.BigEndian.AppendUint32(append(dst, make([]byte, 8)...), oid)
		p.buf = dst
		return p.from(start)
	}
	dst = append(dst, 0, 0, 0, 1, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, oid)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(rows)))
	dst = append(dst, 0, 0, 0, 1)
	for i := range rows {
		at := len(dst) + 4
		var valid bool
		dst, valid = element(append(dst, 0, 0, 0, 0), &rows[i])
		length := uint32(len(dst) - at)
		if !valid {
			dst, length = dst[:at], nullLength
			dst[start+7] = 1
		}
		binary.BigEndian.PutUint32(dst[at-4:], length)
	}
	p.buf = dst
	return p.from(start)
}

func textArray[R any](p *params, rows []R, value func(R) string) []byte {
	return array(p, pgtype.TextOID, rows, func(dst []byte, r *R) ([]byte, bool) { return append(dst, text(value(*r))...), true })
}

func nullTextArray[R any](p *params, rows []R, value func(R) agl.Null[string]) []byte {
	return array(p, pgtype.TextOID, rows, func(dst []byte, r *R) ([]byte, bool) {
		v := value(*r)
		return append(dst, text(v.V)...), v.Valid
	})
}

// textsParam writes a list of texts as an array.
func textsParam(p *params, list []string) []byte {
	return textArray(p, list, func(s string) string { return s })
}

// bytesArray writes documents as an array, nil as null.
func bytesArray[R any](p *params, rows []R, value func(R) []byte) []byte {
	return array(p, pgtype.ByteaOID, rows, func(dst []byte, r *R) ([]byte, bool) {
		v := value(*r)
		return append(dst, v...), v != nil
	})
}

func floatArray[R any](p *params, rows []R, value func(R) float64) []byte {
	return array(p, pgtype.Float8OID, rows, func(dst []byte, r *R) ([]byte, bool) {
		return binary.BigEndian.AppendUint64(dst, math.Float64bits(value(*r))), true
	})
}

func nullFloatArray[R any, F ~float64](p *params, rows []R, value func(R) agl.Null[F]) []byte {
	return array(p, pgtype.Float8OID, rows, func(dst []byte, r *R) ([]byte, bool) {
		v := value(*r)
		return binary.BigEndian.AppendUint64(dst, math.Float64bits(float64(v.V))), v.Valid
	})
}

func int8Array[R any](p *params, rows []R, value func(R) int64) []byte {
	return array(p, pgtype.Int8OID, rows, func(dst []byte, r *R) ([]byte, bool) {
		return binary.BigEndian.AppendUint64(dst, uint64(value(*r))), true
	})
}

func int4Array[R any](p *params, rows []R, value func(R) int32) []byte {
	return array(p, pgtype.Int4OID, rows, func(dst []byte, r *R) ([]byte, bool) {
		return binary.BigEndian.AppendUint32(dst, uint32(value(*r))), true
	})
}

func boolArray[R any](p *params, rows []R, value func(R) bool) []byte {
	return array(p, pgtype.BoolOID, rows, func(dst []byte, r *R) ([]byte, bool) { return appendBool(dst, value(*r)), true })
}

// nullIf returns null for the value none, and otherwise s.
func nullIf(s, none string) agl.Null[string] { return agl.Null[string]{V: s, Valid: s != none} }

// row reads the columns of a result from left to right. The values that it returns are
// copies, except raw's.
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

func (r *row) nullText() agl.Null[string] { return null(r, r.text) }

// null reads a column that may be null.
func null[T any](r *row, read func() T) agl.Null[T] {
	if r.values[r.next] == nil {
		r.next++
		return agl.Null[T]{}
	}
	return agl.Some(read())
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

func (r *row) nullTime() agl.Null[agl.Timestamp] { return null(r, r.time) }

func (r *row) nullFloat() agl.Null[float64] { return null(r, r.float) }

func (r *row) int8() int64 { return int64(binary.BigEndian.Uint64(r.raw())) }

func (r *row) nullInt8() agl.Null[int64] { return null(r, r.int8) }

func (r *row) int4() int { return int(int32(binary.BigEndian.Uint32(r.raw()))) }

func (r *row) bool() bool { return r.raw()[0] != 0 }
