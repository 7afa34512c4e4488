package agl

import (
	"math"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// Null is a value that may be null on the wire. Its zero value is null. V of a
// null is T's zero value, so code that treats both alike can use V directly.
type Null[T any] struct {
	V     T
	Valid bool
}

// Some returns a value that is not null.
func Some[T any](v T) Null[T] { return Null[T]{V: v, Valid: true} }

// Or returns the value, or other if it is null.
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

// MarshalJSON returns the value or null.
func (n Null[T]) MarshalJSON() ([]byte, error) {
	if !n.Valid {
		return []byte("null"), nil
	}
	return json.Marshal(n.V)
}

// UnmarshalJSON reads a value or null.
func (n *Null[T]) UnmarshalJSON(doc []byte) error {
	return readDoc(doc, n)
}

// UnmarshalJSONFrom reads a value or null. A string or number that is refused is a [FieldError].
func (n *Null[T]) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	*n = Null[T]{}
	in := reader(dec)
	if null, err := in.Null(); null || err != nil {
		return err
	}
	n.Valid = true
	switch v := any(&n.V).(type) {
	case *string:
		return in.String(v)
	case *float64:
		return rawjson.Float(in, v)
	case *Timestamp:
		return rawjson.Float(in, v)
	default:
		return json.UnmarshalDecode(dec, v)
	}
}

// Timestamp is a time in seconds since the Unix epoch, as on the wire. For
// present times a float64 is exact to about a quarter of a microsecond.
type Timestamp float64

// TimestampOf converts t.
func TimestampOf(t time.Time) Timestamp {
	return Timestamp(float64(t.Unix()) + float64(t.Nanosecond())/1e9)
}

// Time converts the timestamp to UTC, rounded to a nanosecond.
func (t Timestamp) Time() time.Time {
	sec, frac := math.Modf(float64(t))
	return time.Unix(int64(sec), int64(math.Round(frac*1e9))).UTC()
}

// Add returns t + d.
func (t Timestamp) Add(d time.Duration) Timestamp { return t + Timestamp(d.Seconds()) }

// Sub returns t - u.
func (t Timestamp) Sub(u Timestamp) time.Duration {
	return time.Duration(math.Round(float64(t-u) * 1e9))
}

// MarshalJSON returns the timestamp as a JSON number, null if it is not finite.
func (t Timestamp) MarshalJSON() ([]byte, error) { return rawjson.AppendFloat(nil, float64(t)), nil }
