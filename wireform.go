package agl

import (
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// noun is a value with a JSON object as its wire form. It lists the members of the
// object once, in order; the list serves both for writing and for reading.
type noun interface {
	members(w *wireForm) *wireForm // returns w
}

// codec is a pointer to a T that reads and writes its own wire form.
type codec[T any] interface {
	*T
	rawjson.Appender
	UnmarshalJSONFrom(dec *jsontext.Decoder) error
}

// wireForm visits the members of a noun, in one of two directions. When writing, it appends each member. When
// reading, the decoder stands before the value of one member, and only the visit with its name reads it.
type wireForm struct {
	out rawjson.Object

	reading bool
	in      rawjson.Reader
	name    []byte // the member to read
	found   bool
	err     error
}

// writeTo returns a form that appends to dst.
func writeTo(dst []byte) *wireForm { return &wireForm{out: rawjson.NewObject(dst)} }

// end closes the object that was written and returns the memory.
func (w *wireForm) end() []byte { return w.out.End() }

// readNoun reads a noun from its wire form. It skips keys that are not members, and rejects an object that lacks a
// required one.
func readNoun[T any, N interface {
	*T
	noun
}](dec *jsontext.Decoder, n N, required ...string,
) error {
	*n = *new(T)
	w := wireForm{reading: true, in: reader(dec)}
	return w.in.Object(func(name []byte) error {
		return w.read(name, func() { n.members(&w) })
	}, required...)
}

// read reads the member with this name. walk visits all members that the noun can have.
func (w *wireForm) read(name []byte, walk func()) error {
	w.name, w.found, w.err = name, false, nil
	if walk(); !w.found {
		return w.in.SkipValue()
	}
	return w.err
}

// field is a member that no other method fits.
func field[T any](w *wireForm, name string, value *T, write func([]byte, T) []byte, read func(rawjson.Reader, *T) error) {
	if !w.reading {
		w.out.Key(name)
		w.out = write(w.out, *value)
	} else if w.reads(name) {
		w.err = read(w.in, value)
	}
}

// reads reports whether the member of this name is the one to read.
func (w *wireForm) reads(name string) bool {
	if w.found || string(w.name) != name {
		return false
	}
	w.found = true
	return true
}

func (w *wireForm) string(name string, s *string) {
	if !w.reading {
		w.out.String(name, *s)
	} else if w.reads(name) {
		w.err = w.in.String(s)
	}
}

// nonEmpty is a string that is left out if it is empty.
func (w *wireForm) nonEmpty(name string, s *string) {
	if w.reading || *s != "" {
		w.string(name, s)
	}
}

func (w *wireForm) nullString(name string, s *Null[string]) {
	if !w.reading {
		w.out.NullString(name, s.V, s.Valid)
	} else if w.reads(name) {
		w.err = s.UnmarshalJSONFrom(w.in.Decoder)
	}
}

func (w *wireForm) time(name string, t *Timestamp) {
	if !w.reading {
		w.out.Float(name, float64(*t))
	} else if w.reads(name) {
		w.err = rawjson.Float(w.in, t)
	}
}

// dict is an object; nil is {}.
func (w *wireForm) dict(name string, value *jsontext.Value) {
	if !w.reading {
		w.out.Dict(name, *value)
	} else if w.reads(name) {
		w.err = w.in.RawDict(value)
	}
}

// nullDict is an object; nil is null.
func (w *wireForm) nullDict(name string, value *jsontext.Value) {
	if !w.reading {
		w.out.Raw(name, *value)
	} else if w.reads(name) {
		w.err = w.in.RawDictOrNull(value)
	}
}

func (w *wireForm) attributes(name string, a *Attributes) {
	if !w.reading {
		w.out.Dict(name, *a)
	} else if w.reads(name) {
		w.err = a.UnmarshalJSONFrom(w.in.Decoder)
	}
}

// extra are the members that the noun does not know. It comes last.
func (w *wireForm) extra(object *jsontext.Value) {
	switch {
	case !w.reading:
		w.out.Members(*object)
	case !w.found:
		w.found = true
		key := string(w.name)
		var value jsontext.Value
		if value, w.err = w.in.ReadValue(); w.err == nil {
			*object = rawjson.Set(*object, key, value)
		}
	}
}

func nullNumber[F ~float64](w *wireForm, name string, f *Null[F]) {
	if !w.reading {
		w.out.NullFloat(name, float64(f.V), f.Valid)
	} else if w.reads(name) {
		w.err = f.UnmarshalJSONFrom(w.in.Decoder)
	}
}

func integer[I ~int | ~int64](w *wireForm, name string, i *I) {
	if !w.reading {
		w.out.Int(name, int64(*i))
	} else if w.reads(name) {
		w.err = rawjson.Int(w.in, i)
	}
}

// enum is a string that must be one of allowed.
func enum[S ~string](w *wireForm, name string, s *S, allowed func() []S) {
	if !w.reading {
		w.out.String(name, string(*s))
	} else if w.reads(name) {
		w.err = rawjson.Enum(w.in, s, allowed())
	}
}

// nested is a noun within a noun.
func nested[T any, P codec[T]](w *wireForm, name string, value P) {
	if !w.reading {
		w.out.Value(name, value)
	} else if w.reads(name) {
		w.err = value.UnmarshalJSONFrom(w.in.Decoder)
	}
}

// nullNested is a nested noun or null, which is nil.
func nullNested[T any, P codec[T]](w *wireForm, name string, value *P) {
	field(w, name, value,
		func(dst []byte, value P) []byte {
			if value == nil {
				return append(dst, "null"...)
			}
			return value.AppendJSON(dst)
		},
		func(in rawjson.Reader, value *P) error {
			*value = nil
			if null, err := in.Null(); null || err != nil {
				return err
			}
			*value = new(T)
			return (*value).UnmarshalJSONFrom(in.Decoder)
		})
}

func nestedList[T any, P codec[T]](w *wireForm, name string, list *[]T) {
	field(w, name, list, rawjson.AppendList[T, P], func(in rawjson.Reader, list *[]T) error {
		*list = nil
		return in.List(func() error {
			var element T
			err := P(&element).UnmarshalJSONFrom(in.Decoder)
			*list = append(*list, element)
			return err
		})
	})
}
