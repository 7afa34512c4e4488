package rawjson

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"
)

func TestEdit(t *testing.T) {
	t.Parallel()
	doc := jsontext.Value(`{"a":1.0, "b":"\u00e9\/","a":{"x":[1]},"c\u0021":null}`)
	if got, ok := Get(doc, "a"); !ok || string(got) != `{"x":[1]}` {
		t.Errorf("a = %s, %v, want the last one", got, ok)
	}
	if got, ok := Get(doc, "c!"); !ok || string(got) != "null" {
		t.Errorf("c! = %s, %v", got, ok)
	}
	if got, ok := Get(doc, "d"); ok {
		t.Errorf("d = %s", got)
	}
	for _, c := range []struct{ name, got, want string }{
		{"set", string(Set(doc, "a", jsontext.Value("2"))), `{"a":2,"b":"\u00e9\/","c\u0021":null}`},
		{"set an escaped name", string(Set(doc, "c!", jsontext.Value("2"))), `{"a":1.0,"b":"\u00e9\/","a":{"x":[1]},"c\u0021":2}`},
		{"add", string(Set(doc, "d\"", jsontext.Value("[]"))), `{"a":1.0,"b":"\u00e9\/","a":{"x":[1]},"c\u0021":null,"d\"":[]}`},
		{"set in nil", string(Set(nil, "a", jsontext.Value("1"))), `{"a":1}`},
		{"set in null", string(Set(Null(), "a", jsontext.Value("1"))), `{"a":1}`},
		{"set in {}", string(Set(jsontext.Value("{ }"), "a", jsontext.Value("1"))), `{"a":1}`},
		{"remove", string(Remove(doc, "a")), `{"b":"\u00e9\/","c\u0021":null}`},
		{"remove what is not there", string(Remove(jsontext.Value(`{"a":1}`), "b")), `{"a":1}`},
		{"remove from nil", string(Remove(nil, "a")), `{}`},
	} {
		if c.got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, c.got, c.want)
		}
	}
}

// What was set is found, the other members stay, and what was removed is gone.
func FuzzEdit(f *testing.F) {
	for _, seed := range fuzzSeeds {
		f.Add([]byte(seed), "a", []byte("[1]"))
	}
	f.Fuzz(func(t *testing.T, raw []byte, key string, value []byte) {
		object, set := jsontext.Value(raw), jsontext.Value(value)
		Get(object, key)
		Remove(object, key)
		Set(object, key, set)
		if !object.IsValid(Options()) || object.Kind() != '{' || !set.IsValid(Options()) {
			return
		}
		key = Unquote(AppendString(nil, key)) // valid UTF-8, as in a document
		changed := Set(object, key, set)
		if !changed.IsValid(Options()) {
			t.Fatalf("%s is no JSON", changed)
		}
		if got, ok := Get(changed, key); !ok || string(got) != string(trimmed(set)) {
			t.Fatalf("%q is %s in %s", key, got, changed)
		}
		removed := Remove(changed, key)
		if _, ok := Get(removed, key); ok || !removed.IsValid(Options()) {
			t.Fatalf("%q is still there in %s", key, removed)
		}
		if want := Remove(object, key); string(removed) != string(want) {
			t.Fatalf("others changed: %s, want %s", removed, want)
		}
	})
}

// trimmed is a value as the scanner yields it.
func trimmed(value jsontext.Value) (out jsontext.Value) {
	for _, v := range Members([]byte(`{"a":` + string(value) + `}`)) {
		out = v
	}
	return out
}
