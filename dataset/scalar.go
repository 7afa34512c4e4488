package dataset

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/hex"
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
)

// scalarWriter writes a value of a Parquet column as JSON.
type scalarWriter func(out *bytes.Buffer, v parquet.Value) error

// newScalarWriter picks by the logical type, and by the physical one where there
// is none.
func newScalarWriter(c *parquet.Column) scalarWriter {
	if logical := c.Type().LogicalType(); logical != nil {
		switch t := logical.Value.(type) {
		case *format.StringType, *format.EnumType:
			return writeText
		case *format.JsonType:
			return writeJSON
		case *format.UUIDType:
			return writeUUID
		case *format.DateType:
			return func(out *bytes.Buffer, v parquet.Value) error {
				writeString(out, time.Unix(int64(v.Int32())*24*60*60, 0).UTC().Format(time.DateOnly))
				return nil
			}
		case *format.TimestampType:
			return timestampWriter(t)
		case *format.TimeType:
			return timeWriter(t)
		case *format.DecimalType:
			return decimalWriter(int(t.Scale))
		case *format.IntType:
			if !t.IsSigned {
				return writeUnsigned
			}
		case *format.NullType:
			return func(out *bytes.Buffer, _ parquet.Value) error { out.WriteString("null"); return nil }
		case *format.Float16Type:
			return writeHalf
		}
	}
	return writePhysical
}

func writePhysical(out *bytes.Buffer, v parquet.Value) error {
	switch v.Kind() {
	case parquet.Boolean:
		out.WriteString(strconv.FormatBool(v.Boolean()))
	case parquet.Int32:
		out.WriteString(strconv.FormatInt(int64(v.Int32()), 10))
	case parquet.Int64:
		out.WriteString(strconv.FormatInt(v.Int64(), 10))
	case parquet.Int96:
		// The deprecated timestamp: nanoseconds of the day, then the Julian day.
		const epoch = 2440588
		words := v.Int96()
		nanoseconds := int64(words[1])<<32 | int64(words[0])
		writeString(out, time.Unix((int64(words[2])-epoch)*24*60*60, nanoseconds).UTC().Format(time.RFC3339Nano))
	case parquet.Float:
		writeFloat(out, float64(v.Float()), 32)
	case parquet.Double:
		writeFloat(out, v.Double(), 64)
	case parquet.ByteArray, parquet.FixedLenByteArray:
		writeString(out, base64.StdEncoding.EncodeToString(v.ByteArray()))
	default:
		return fmt.Errorf("a value of kind %s cannot be read", v.Kind())
	}
	return nil
}

func writeFloat(out *bytes.Buffer, f float64, bits int) {
	switch {
	case math.IsNaN(f):
		out.WriteString(`"NaN"`)
	case math.IsInf(f, 1):
		out.WriteString(`"Infinity"`)
	case math.IsInf(f, -1):
		out.WriteString(`"-Infinity"`)
	default:
		out.WriteString(strconv.FormatFloat(f, 'g', -1, bits))
	}
}

func writeText(out *bytes.Buffer, v parquet.Value) error {
	if !utf8.Valid(v.ByteArray()) {
		return fmt.Errorf("got %s, which is not UTF-8", excerpt(v.ByteArray()))
	}
	writeString(out, string(v.ByteArray()))
	return nil
}

func writeJSON(out *bytes.Buffer, v parquet.Value) error {
	if !jsontext.Value(v.ByteArray()).IsValid() {
		return fmt.Errorf("got %s, must be one JSON value", excerpt(v.ByteArray()))
	}
	out.Write(bytes.TrimSpace(v.ByteArray()))
	return nil
}

func writeUUID(out *bytes.Buffer, v parquet.Value) error {
	id := v.ByteArray()
	if len(id) != 16 {
		return fmt.Errorf("a UUID of %d bytes, must be 16", len(id))
	}
	text := hex.EncodeToString(id)
	writeString(out, strings.Join([]string{text[:8], text[8:12], text[12:16], text[16:20], text[20:]}, "-"))
	return nil
}

func writeUnsigned(out *bytes.Buffer, v parquet.Value) error {
	if v.Kind() == parquet.Int32 {
		out.WriteString(strconv.FormatUint(uint64(v.Uint32()), 10))
	} else {
		out.WriteString(strconv.FormatUint(v.Uint64(), 10))
	}
	return nil
}

// writeHalf writes an IEEE 754 half-precision number.
func writeHalf(out *bytes.Buffer, v parquet.Value) error {
	b := v.ByteArray()
	if len(b) != 2 {
		return fmt.Errorf("a half-precision number of %d bytes, must be 2", len(b))
	}
	half := binary.LittleEndian.Uint16(b)
	exponent, fraction := int(half>>10&0x1f), float64(half&0x3ff)
	var f float64
	switch exponent {
	case 0:
		f = math.Ldexp(fraction, -24)
	case 0x1f:
		f = math.Inf(1)
		if fraction != 0 {
			f = math.NaN()
		}
	default:
		f = math.Ldexp(1024+fraction, exponent-25)
	}
	if half>>15 == 1 {
		f = -f
	}
	writeFloat(out, f, 32)
	return nil
}

func timestampWriter(t *format.TimestampType) scalarWriter {
	layout := time.RFC3339Nano
	if !t.IsAdjustedToUTC {
		layout = "2006-01-02T15:04:05.999999999"
	}
	perSecond := int64(time.Second / t.Unit.Value.Duration())
	return func(out *bytes.Buffer, v parquet.Value) error {
		n := v.Int64()
		at := time.Unix(n/perSecond, n%perSecond*int64(t.Unit.Value.Duration())).UTC()
		writeString(out, at.Format(layout))
		return nil
	}
}

func timeWriter(t *format.TimeType) scalarWriter {
	return func(out *bytes.Buffer, v parquet.Value) error {
		n := v.Int64()
		if v.Kind() == parquet.Int32 {
			n = int64(v.Int32())
		}
		writeString(out, time.Unix(0, n*int64(t.Unit.Value.Duration())).UTC().Format("15:04:05.999999999"))
		return nil
	}
}

// decimalWriter writes unscaled integers with a point before the last digits.
func decimalWriter(scale int) scalarWriter {
	return func(out *bytes.Buffer, v parquet.Value) error {
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
		digits, sign := new(big.Int).Abs(unscaled).String(), ""
		if unscaled.Sign() < 0 {
			sign = "-"
		}
		if scale > 0 {
			if missing := scale + 1 - len(digits); missing > 0 {
				digits = strings.Repeat("0", missing) + digits
			}
			digits = digits[:len(digits)-scale] + "." + digits[len(digits)-scale:]
		}
		out.WriteString(sign + digits)
		return nil
	}
}
