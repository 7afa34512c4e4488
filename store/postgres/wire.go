package postgres

import (
	"encoding/binary"
	"math"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/agl-go/agl"
)

// A batch goes to the server as a few statements whose arguments are arrays, one for
// each column.

// column returns one column of rows as an array.
func column[R, T any](rows []R, value func(R) T) pgtype.FlatArray[T] {
	out := make(pgtype.FlatArray[T], len(rows))
	for i, r := range rows {
		out[i] = value(r)
	}
	return out
}

// nullText is a text as an element of an array, nil for null.
func nullText(s agl.Null[string]) *string {
	if !s.Valid {
		return nil
	}
	escaped := text(s.V)
	return &escaped
}

// nullTime is a time as an element of an array, nil for null.
func nullTime(t agl.Null[agl.Timestamp]) *float64 {
	if !t.Valid {
		return nil
	}
	seconds := float64(t.V)
	return &seconds
}

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
