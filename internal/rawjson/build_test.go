package rawjson

import (
	"math"
	"testing"
)

type noun struct{ v string }

func (n *noun) AppendJSON(dst []byte) []byte { return AppendString(dst, n.v) }

func TestObject(t *testing.T) {
	t.Parallel()
	o := NewObject([]byte("before"))
	o.String("s", "a\"\n\xff")
	o.NonEmpty("none", "")
	o.NonEmpty("some", "x")
	o.NullString("n", "x", false)
	o.NullString("v", "x", true)
	o.Int("i", math.MinInt64)
	o.Float("f", 1)
	o.NullFloat("nf", 1, false)
	o.NullFloat("vf", 0.5, true)
	o.Bool("b", true)
	o.Raw("r", []byte(`{"x": 1}`))
	o.Raw("rn", nil)
	o.Dict("d", nil)
	o.Dict("dv", []byte(`{"y":2}`))
	o.Value("noun", &noun{"z"})
	o.AnyKey("k\"")
	o = append(o, '1')
	o.Member([]byte(`\u0061`), []byte("2"))
	o.Members([]byte(` {"m":[ ],"n":3}`))
	o.Key("list")
	o = AppendArray(o, []string{"p", "q"}, AppendString[string])
	o.Key("empty")
	o = AppendArray(o, []int{}, AppendInt[int])
	o.Key("nouns")
	o = AppendList(o, []noun{{"1"}, {"2"}})
	inner := NewObject(nil)
	o.Raw("inner", inner.End())
	const want = `before{"s":"a\"\n` + "\ufffd" + `","some":"x","n":null,"v":"x","i":-9223372036854775808,"f":1.0,"nf":null,"vf":0.5,"b":true,` +
		`"r":{"x": 1},"rn":null,"d":{},"dv":{"y":2},"noun":"z","k\"":1,"\u0061":2,"m":[ ],"n":3,"list":["p","q"],"empty":[],"nouns":["1","2"],"inner":{}}`
	done := o.End()
	if string(done) != want {
		t.Errorf("got  %s\nwant %s", done, want)
	}
	again := Reopen(done)
	again.Int("more", 1)
	if got := string(again.End()); got != want[:len(want)-1]+`,"more":1}` {
		t.Errorf("reopened: %s", got)
	}
	empty := Reopen([]byte("{}"))
	empty.Int("first", 1)
	if got := string(empty.End()); got != `{"first":1}` {
		t.Errorf("reopened: %s", got)
	}
}

func TestAppendFloat(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		f          float64
		want, text string
	}{
		{0, "0.0", "0.0"},
		{1, "1.0", "1.0"},
		{-2.5, "-2.5", "-2.5"},
		{0.0001, "0.0001", "0.0001"},
		{0.00001, "1e-05", "1e-05"},
		{1e15, "1000000000000000.0", "1000000000000000.0"},
		{1e16, "1e+16", "1e+16"},
		{1e17, "1e+17", "1e+17"},
		{1795172350.7193449, "1795172350.7193449", "1795172350.7193449"},
		{math.NaN(), "null", `"NaN"`},
		{math.Inf(1), "null", `"Infinity"`},
		{math.Inf(-1), "null", `"-Infinity"`},
	} {
		if got := string(AppendFloat(nil, c.f)); got != c.want {
			t.Errorf("%v: got %s, want %s", c.f, got, c.want)
		}
		if got := string(AppendFloatText(nil, c.f)); got != c.text {
			t.Errorf("%v: got %s, want %s", c.f, got, c.text)
		}
	}
}
