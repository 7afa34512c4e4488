package rawjson

import "github.com/go-json-experiment/json/jsontext"

// Get returns the raw value of key in a raw object, the last one if the key is
// repeated. The value shares the object's memory.
func Get(object jsontext.Value, key string) (value jsontext.Value, ok bool) {
	for name, v := range Members(object) {
		if NameIs(name, key) {
			value = v
		}
	}
	return value, value != nil
}

// Set returns object with key set to value: in place where the key is there, at the end where it is not. The bytes of the
// other members stay as they are. A nil, null or empty object counts as {}.
func Set(object jsontext.Value, key string, value jsontext.Value) jsontext.Value {
	out := NewObject(make([]byte, 0, len(object)+len(key)+len(value)+8))
	done := false
	for name, v := range Members(object) {
		switch {
		case !NameIs(name, key):
			out.Member(name, v)
		case !done:
			out.Member(name, value)
			done = true
		}
	}
	if !done {
		out.AnyKey(key)
		out = append(out, value...)
	}
	return out.End()
}

// Remove returns object without the members of that key. The bytes of the others stay as they are.
func Remove(object jsontext.Value, key string) jsontext.Value {
	out := NewObject(make([]byte, 0, len(object)+2))
	for name, v := range Members(object) {
		if !NameIs(name, key) {
			out.Member(name, v)
		}
	}
	return out.End()
}
