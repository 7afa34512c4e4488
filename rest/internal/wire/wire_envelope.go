package wire

import (
	"fmt"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// Envelope is the body of a request. It encodes the parameters that it was made for, and decodes into them.
type Envelope interface {
	rawjson.Appender
	json.UnmarshalerFrom
}

// members is an envelope as a list of members, each with its name and a pointer to its value. Reading leaves the
// values of absent members as they are; writing leaves out unset values.
type members []member

type member struct {
	name string
	to   any // a pointer to one of the types that read handles, or a codec
	rule rule
}

// rule says whether a member may be absent or null.
type rule int

const (
	optional rule = iota
	required
	notNull // optional, but not null
)

// AppendJSON implements [Envelope].
func (m members) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	for i := range m {
		m[i].write(&o)
	}
	return o.End()
}

// UnmarshalJSONFrom implements [Envelope]. It ignores unknown members.
func (m members) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	in := reader(dec)
	names := make([]string, 0, 4)
	for i := range m {
		if m[i].rule == required {
			names = append(names, m[i].name)
		}
	}
	return in.Object(func(name []byte) error {
		found := m.find(string(name))
		if found == nil {
			return in.SkipValue()
		}
		if found.rule == notNull && in.PeekKind() == 'n' {
			return ErrDetail(http.StatusBadRequest, found.name+" is invalid; it cannot be a null value.")
		}
		return found.read(in)
	}, names...)
}

func (m members) find(name string) *member {
	for i := range m {
		if m[i].name == name {
			return &m[i]
		}
	}
	return nil
}

// reader returns a reader of envelopes, which rejects a value with an agl.FieldError.
func reader(dec *jsontext.Decoder) rawjson.Reader {
	return rawjson.Reader{Decoder: dec, Reject: rejectField}
}

func rejectField(at jsontext.Pointer, kind, message string, input jsontext.Value) error {
	return &agl.FieldError{Pointer: at, Type: kind, Message: message, Input: input}
}

func sortOrders() []agl.SortOrder     { return []agl.SortOrder{agl.Ascending, agl.Descending} }
func filterLogics() []agl.FilterLogic { return []agl.FilterLogic{agl.FilterAnd, agl.FilterOr} }

// read reads the value. Null for an optional text, time or list counts as absent.
func (m *member) read(in rawjson.Reader) error {
	switch to := m.to.(type) {
	case *int:
		return rawjson.Int(in, to)
	case *bool:
		return in.Bool(to)
	case *agl.SortOrder:
		return rawjson.Enum(in, to, sortOrders())
	case *agl.FilterLogic:
		return rawjson.Enum(in, to, filterLogics())
	case codec:
		return to.read(in)
	}
	if in.PeekKind() == 'n' && m.rule != required {
		return in.SkipValue()
	}
	switch to := m.to.(type) {
	case *string:
		return in.String(to)
	case *agl.Null[string]:
		return to.UnmarshalJSONFrom(in.Decoder)
	case *agl.Null[int]:
		to.Valid = true
		return rawjson.Int(in, &to.V)
	case *time.Duration:
		return readSeconds(in, to, MaxWait)
	case *agl.Null[time.Duration]:
		to.Valid = true
		return readSeconds(in, &to.V, 0)
	case *[]string:
		return in.Strings(to)
	case *[]agl.RolloutStatus:
		return rawjson.Enums(in, to, agl.RolloutStatuses())
	case *[]agl.WorkerStatus:
		return rawjson.Enums(in, to, agl.WorkerStatuses())
	case *[]agl.Mode:
		return rawjson.Enums(in, to, agl.Modes())
	case *[]agl.OutcomeKind:
		return rawjson.Enums(in, to, agl.OutcomeKinds())
	case *[]agl.Label:
		return readLabels(in, to)
	case *agl.Null[float64]:
		return to.UnmarshalJSONFrom(in.Decoder)
	}
	return in.SkipValue()
}

// write writes the member, unless its value is unset. A nil list is unset. An empty list is not: as a filter it
// matches nothing.
func (m *member) write(o *rawjson.Object) {
	switch to := m.to.(type) {
	case *int:
		if *to != 0 {
			o.Int(m.name, int64(*to))
		}
	case *bool:
		if *to {
			o.Bool(m.name, true)
		}
	case *agl.SortOrder:
		o.NonEmpty(m.name, string(*to))
	case *agl.FilterLogic:
		o.NonEmpty(m.name, string(*to))
	case *string:
		if *to != "" || m.rule == required {
			o.String(m.name, *to)
		}
	case *agl.Null[string]:
		if to.Valid {
			o.String(m.name, to.V)
		}
	case *agl.Null[int]:
		if to.Valid {
			o.Int(m.name, int64(to.V))
		}
	case *time.Duration:
		if *to > 0 {
			o.Float(m.name, to.Seconds())
		}
	case *agl.Null[time.Duration]:
		if to.Valid {
			o.Float(m.name, to.V.Seconds())
		}
	case *[]string:
		writeList(o, m, *to, rawjson.AppendString[string])
	case *[]agl.RolloutStatus:
		writeList(o, m, *to, rawjson.AppendString[agl.RolloutStatus])
	case *[]agl.WorkerStatus:
		writeList(o, m, *to, rawjson.AppendString[agl.WorkerStatus])
	case *[]agl.Mode:
		writeList(o, m, *to, rawjson.AppendString[agl.Mode])
	case *[]agl.OutcomeKind:
		writeList(o, m, *to, rawjson.AppendString[agl.OutcomeKind])
	case *[]agl.Label:
		writeList(o, m, *to, func(dst []byte, l agl.Label) []byte { return rawjson.AppendString(dst, l.String()) })
	case *agl.Null[float64]:
		if to.Valid { // NaN and infinities become text, which the server rejects
			o.Key(m.name)
			*o = rawjson.AppendFloatText(*o, to.V)
		}
	case codec:
		to.write(o, m)
	}
}

func (m *member) isBool() bool {
	_, ok := m.to.(*bool)
	return ok
}

// isList reports whether the member is a list of texts.
func (m *member) isList() bool {
	switch m.to.(type) {
	case *[]string, *[]agl.RolloutStatus, *[]agl.WorkerStatus, *[]agl.Mode, *[]agl.OutcomeKind, *[]agl.Label:
		return true
	}
	return false
}

func writeList[T any](o *rawjson.Object, m *member, list []T, one func(dst []byte, element T) []byte) {
	if list != nil || m.rule == required {
		o.Key(m.name)
		*o = rawjson.AppendArray(*o, list, one)
	}
}

// readLabels reads labels of the form name=value.
func readLabels(in rawjson.Reader, list *[]agl.Label) error {
	*list = []agl.Label{}
	return in.List(func() error {
		var text string
		if err := in.String(&text); err != nil {
			return err
		}
		var l agl.Label
		if err := l.UnmarshalText([]byte(text)); err != nil {
			return rejectField(in.StackPointer(), "value_error", "Input should be of the form name=value", rawjson.AppendString(nil, text))
		}
		*list = append(*list, l)
		return nil
	})
}

// readSeconds reads a duration in seconds, bounded by most unless most is 0. A negative one counts as 0.
func readSeconds(in rawjson.Reader, d *time.Duration, most time.Duration) error {
	var seconds float64
	if err := rawjson.Float(in, &seconds); err != nil {
		return err
	}
	if most > 0 && seconds > most.Seconds() {
		message := fmt.Sprintf("Input should be less than or equal to %g", most.Seconds())
		return rejectField(in.StackPointer(), "less_than_equal", message, strconv.AppendFloat(nil, seconds, 'g', -1, 64))
	}
	longest := float64(math.MaxInt64/2) / float64(time.Second) // leaves room to add it to a time
	*d = time.Duration(min(max(seconds, 0), longest) * float64(time.Second))
	return nil
}

// codec reads and writes the value of a member.
type codec interface {
	read(in rawjson.Reader) error
	write(o *rawjson.Object, m *member)
}

// count is an integer of at least 1; 0 is unset.
type count int

func (c *count) read(in rawjson.Reader) error { return rawjson.IntAtLeast(in, c, 1) }

func (c *count) write(o *rawjson.Object, m *member) {
	if *c != 0 {
		o.Int(m.name, int64(*c))
	}
}

// raw is any JSON, null included; nil is unset.
type raw jsontext.Value

func (r *raw) read(in rawjson.Reader) error { return in.Raw((*jsontext.Value)(r)) }

func (r *raw) write(o *rawjson.Object, m *member) {
	if *r != nil {
		o.Raw(m.name, *r)
	}
}

// dict is raw that must be an object or null.
type dict raw

func (d *dict) read(in rawjson.Reader) error {
	if in.PeekKind() == 'n' {
		return (*raw)(d).read(in)
	}
	return in.RawDict((*jsontext.Value)(d))
}

func (d *dict) write(o *rawjson.Object, m *member) { (*raw)(d).write(o, m) }

// set is a value that is unset while the pointer to it is nil.
type set[T any] struct{ to **T }

func (s set[T]) read(in rawjson.Reader) error {
	var v agl.Null[T]
	err := v.UnmarshalJSONFrom(in.Decoder)
	*s.to = &v.V
	return err
}

func (s set[T]) write(o *rawjson.Object, m *member) {
	if *s.to != nil {
		o.Key(m.name)
		text, _ := json.Marshal(**s.to, rawjson.Options()) // texts, numbers and nouns can always be encoded
		*o = append(*o, text...)
	}
}

// setEnum is set for an enumeration, whose empty value is null.
type setEnum[S ~string] struct {
	to      **S
	allowed func() []S
}

func (s setEnum[S]) read(in rawjson.Reader) error {
	*s.to = new(S)
	if null, err := in.Null(); null || err != nil {
		return err
	}
	return rawjson.Enum(in, *s.to, s.allowed())
}

func (s setEnum[S]) write(o *rawjson.Object, m *member) {
	if *s.to != nil {
		o.NullString(m.name, string(**s.to), **s.to != "")
	}
}

// list is a list of envelopes.
type list[T any] struct {
	to       *[]T
	envelope func(element *T) Envelope
}

func (l list[T]) read(in rawjson.Reader) error {
	*l.to = nil
	return in.List(func() error {
		*l.to = append(*l.to, *new(T))
		return l.envelope(&(*l.to)[len(*l.to)-1]).UnmarshalJSONFrom(in.Decoder)
	})
}

func (l list[T]) write(o *rawjson.Object, m *member) {
	writeList(o, m, *l.to, func(dst []byte, element T) []byte { return l.envelope(&element).AppendJSON(dst) })
}
