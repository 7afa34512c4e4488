package dataset

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/agl-go/agl/internal/rawjson"
)

// appendScalar appends a value of a Parquet column as JSON.
type appendScalar func(dst []byte, v parquet.Value) ([]byte, error)

// scalarOf returns the function that appends the values of a column: by its logical type, or else by its physical
// type.
func scalarOf(c *parquet.Column) appendScalar {
	if logical := c.Type().LogicalType(); logical != nil {
		switch t := logical.Value.(type) {
		case *format.StringType, *format.EnumType:
			return appendText
		case *format.JsonType:
			return appendJSON
		case *format.UUIDType:
			return appendUUID
		case *format.DateType:
			return func(dst []byte, v parquet.Value) ([]byte, error) {
				return rawjson.AppendString(dst, time.Unix(int64(v.Int32())*24*60*60, 0).UTC().Format(time.DateOnly)), nil
			}
		case *format.TimestampType:
			return appendTimestamp(t)
		case *format.TimeType:
			return appendTime(t)
		case *format.DecimalType:
			return appendDecimal(int(t.Scale))
		case *format.IntType:
			if !t.IsSigned {
				return appendUnsigned
			}
		case *format.NullType:
			return func(dst []byte, _ parquet.Value) ([]byte, error) { return append(dst, "null"...), nil }
		}
	}
	return appendPhysical
}

func appendPhysical(dst []byte, v parquet.Value) ([]byte, error) {
	switch v.Kind() {
	case parquet.Boolean:
		return strconv.AppendBool(dst, v.Boolean()), nil
	case parquet.Int32:
		return strconv.AppendInt(dst, int64(v.Int32()), 10), nil
	case parquet.Int64:
		return strconv.AppendInt(dst, v.Int64(), 10), nil
	case parquet.Int96:
		// The deprecated timestamp type: nanoseconds of the day, then the Julian day.
		const epoch = 2440588
		words := v.Int96()
		nanoseconds := int64(words[1])<<32 | int64(words[0])
		return rawjson.AppendString(dst, time.Unix((int64(words[2])-epoch)*24*60*60, nanoseconds).UTC().Format(time.RFC3339Nano)), nil
	case parquet.Float:
		return appendFloat(dst, float64(v.Float()), 32), nil
	case parquet.Double:
		return appendFloat(dst, v.Double(), 64), nil
	case parquet.ByteArray, parquet.FixedLenByteArray:
		return rawjson.AppendString(dst, base64.StdEncoding.EncodeToString(v.ByteArray())), nil
	default:
		return nil, fmt.Errorf("a value of kind %s cannot be read", v.Kind())
	}
}

// appendFloat appends the shortest number that reads back as f with this many bits, with a point or an exponent, so
// that every reader takes the values of one column for floats. A float that JSON cannot represent becomes a string.
func appendFloat(dst []byte, f float64, bits int) []byte {
	if bits == 32 {
		f, _ = strconv.ParseFloat(strconv.FormatFloat(f, 'g', -1, bits), 64) // its own text is a number
	}
	return rawjson.AppendFloatText(dst, f)
}

func appendText(dst []byte, v parquet.Value) ([]byte, error) {
	if !utf8.Valid(v.ByteArray()) {
		return nil, fmt.Errorf("got %s, which is not UTF-8", excerpt(v.ByteArray()))
	}
	return rawjson.AppendString(dst, string(v.ByteArray())), nil
}

func appendJSON(dst []byte, v parquet.Value) ([]byte, error) {
	if !jsontext.Value(v.ByteArray()).IsValid() {
		return nil, fmt.Errorf("got %s, must be one JSON value", excerpt(v.ByteArray()))
	}
	return append(dst, bytes.TrimSpace(v.ByteArray())...), nil
}

func appendUUID(dst []byte, v parquet.Value) ([]byte, error) {
	id := v.ByteArray()
	if len(id) != 16 {
		return nil, fmt.Errorf("a UUID of %d bytes, must be 16", len(id))
	}
	return fmt.Appendf(dst, `"%x-%x-%x-%x-%x"`, id[:4], id[4:6], id[6:8], id[8:10], id[10:]), nil
}

func appendUnsigned(dst []byte, v parquet.Value) ([]byte, error) {
	if v.Kind() == parquet.Int32 {
		return strconv.AppendUint(dst, uint64(v.Uint32()), 10), nil
	}
	return strconv.AppendUint(dst, v.Uint64(), 10), nil
}

// appendHalf appends an IEEE 754 half-precision number.
func appendHalf(dst []byte, v parquet.Value) ([]byte, error) {
	b := v.ByteArray()
	if len(b) != 2 {
		return nil, fmt.Errorf("a half-precision number of %d bytes, must be 2", len(b))
	}
	half := uint32(binary.LittleEndian.Uint16(b))
	bits := half&0x8000<<16 | half&0x7fff<<13 // sign, exponent and fraction at their places in a float32
	f := math.Float32frombits(bits) * 0x1p112 // the biases of the exponents are 127 and 15
	if half&0x7c00 == 0x7c00 {                // infinity or NaN
		f = math.Float32frombits(bits | 0x7f800000)
	}
	return appendFloat(dst, float64(f), 32), nil
}

func appendTimestamp(t *format.TimestampType) appendScalar {
	layout := time.RFC3339Nano
	if !t.IsAdjustedToUTC {
		layout = "2006-01-02T15:04:05.999999999"
	}
	perSecond := int64(time.Second / t.Unit.Value.Duration())
	return func(dst []byte, v parquet.Value) ([]byte, error) {
		n := v.Int64()
		at := time.Unix(n/perSecond, n%perSecond*int64(t.Unit.Value.Duration())).UTC()
		return rawjson.AppendString(dst, at.Format(layout)), nil
	}
}

func appendTime(t *format.TimeType) appendScalar {
	return func(dst []byte, v parquet.Value) ([]byte, error) {
		n := v.Int64()
		if v.Kind() == parquet.Int32 {
			n = int64(v.Int32())
		}
		return rawjson.AppendString(dst, time.Unix(0, n*int64(t.Unit.Value.Duration())).UTC().Format("15:04:05.999999999")), nil
	}
}

// appendDecimal appends unscaled integers with a decimal point before the last scale digits.
func appendDecimal(scale int) appendScalar {
	return func(dst []byte, v parquet.Value) ([]byte, error) {
		switch {
		case scale < 0:
			return nil, fmt.Errorf("a decimal with the scale %d, must not be negative", scale)
		case scale > MaxLine: // as many digits
			return nil, errLongRow
		}
		unscaled := new(big.Int)
		switch v.Kind() {
		case parquet.Int32:
			unscaled.SetInt64(int64(v.Int32()))
		case parquet.Int64:
			unscaled.SetInt64(v.Int64())
		default: // big-endian two's complement
			b := v.ByteArray()
			unscaled.SetBytes(b)
			if len(b) > 0 && b[0]&0x80 != 0 {
				unscaled.Sub(unscaled, new(big.Int).Lsh(big.NewInt(1), uint(len(b))*8))
			}
		}
		digits := new(big.Int).Abs(unscaled).String()
		if unscaled.Sign() < 0 {
			dst = append(dst, '-')
		}
		if scale > 0 {
			if missing := scale + 1 - len(digits); missing > 0 {
				digits = strings.Repeat("0", missing) + digits
			}
			digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
		}
		return append(dst, digits...), nil
	}
}
