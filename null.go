package agl

import (
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Null is a value that may be null on the wire. Its zero value is null, and V
// is then T's zero value, so a reader that does not care may use V at once.
type Null[T any] struct {
	V     T
	Valid bool
}

// Some returns a value that is not null.
func Some[T any](v T) Null[T] { return Null[T]{V: v, Valid: true} }

// Or returns the value, or other when it is null.
func (n Null[T]) Or(other T) T {
	if n.Valid {
		return n.V
	}
	return other
}

// IsZero reports whether the value is null.
func (n Null[T]) IsZero() bool { return !n.Valid }

// MarshalJSONTo writes the value or null.
func (n Null[T]) MarshalJSONTo(enc *jsontext.Encoder) error {
	if !n.Valid {
		return enc.WriteToken(jsontext.Null)
	}
	return json.MarshalEncode(enc, n.V)
}

// UnmarshalJSONFrom reads a value or null.
func (n *Null[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	if dec.PeekKind() == 'n' {
		*n = Null[T]{}
		return dec.SkipValue()
	}
	n.Valid = true
	return json.UnmarshalDecode(dec, &n.V)
}

// Timestamp is a moment in seconds since the Unix epoch, the wire's form of
// time. A float64 holds today's moments to about a quarter of a microsecond.
type Timestamp float64

// TimestampOf converts t.
func TimestampOf(t time.Time) Timestamp {
	return Timestamp(float64(t.Unix()) + float64(t.Nanosecond())/1e9)
}

// Time converts the timestamp, rounded to a nanosecond, in UTC.
func (t Timestamp) Time() time.Time {
	sec, frac := math.Modf(float64(t))
	return time.Unix(int64(sec), int64(math.Round(frac*1e9))).UTC()
}

// Add returns the timestamp d later.
func (t Timestamp) Add(d time.Duration) Timestamp { return t + Timestamp(d.Seconds()) }

// Sub returns t - u.
func (t Timestamp) Sub(u Timestamp) time.Duration {
	return time.Duration(math.Round(float64(t-u) * 1e9))
}

// MarshalJSONTo writes the timestamp as a JSON number.
func (t Timestamp) MarshalJSONTo(enc *jsontext.Encoder) error {
	return enc.WriteValue(appendFloat(nil, float64(t)))
}

// appendFloat writes f as Python's repr does, so that a float stays a float
// for readers that tell 1 from 1.0. A value that JSON cannot say becomes null.
func appendFloat(dst []byte, f float64) []byte {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return append(dst, "null"...)
	}
	abs := math.Abs(f)
	if abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.AppendFloat(dst, f, 'e', -1, 64)
	}
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	if slices.Contains(dst[start:], '.') {
		return dst
	}
	return append(dst, '.', '0')
}
