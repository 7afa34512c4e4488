package spandelta_test

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/spandelta"
)

// outlines are of the attributes whose names do not begin with "gen_ai.".
func (c *chain) outlines() *spandelta.Outlines {
	return spandelta.NewOutlines(c.codec, "attributes", selected, func(id string) (spandelta.Stored, bool) {
		s, found := c.stored[id]
		return s, found
	})
}

func selected(name string) bool { return !strings.HasPrefix(name, "gen_ai.") && name != "7" }

// outlined is the document of an outline.
func outlined(o spandelta.Outline) string {
	out := bytes.Clone(o.Head)
	for i, m := range o.Members {
		if i > 0 {
			out = append(out, ',')
		}
		out = fmt.Appendf(out, `"%s":`, m.Name)
		out = m.Value.AppendFrom(out, 0)
	}
	return string(append(out, o.Tail...))
}

// filtered is a document with the selected attributes only.
func filtered(document string) string {
	attributes, _ := rawjson.Get([]byte(document), "attributes")
	kept := rawjson.NewObject(nil)
	for name, value := range rawjson.Members(attributes) {
		if selected(rawjson.UnquoteName(name)) {
			kept.Member(name, value)
		}
	}
	return strings.Replace(document, string(attributes), string(kept.End()), 1)
}

type fatal interface {
	Helper()
	Fatalf(format string, args ...any)
}

func outlinesTo(t fatal, o *spandelta.Outlines, id, document string) spandelta.Outline {
	t.Helper()
	got, err := o.Outline(id)
	if err != nil {
		t.Fatalf("span %s: error %v; want an outline of %.500q", id, err, document)
	}
	if want := filtered(document); outlined(got) != want {
		t.Fatalf("span %s is %.500q,\nwant %.500q", id, outlined(got), want)
	}
	return got
}

// TestOutlineOfConversation reads what each call adds.
func TestOutlineOfConversation(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and it has one goroutine")
	}
	const calls = 200
	c := newChain()
	for n := 1; n <= calls; n++ {
		base := ""
		if n > 1 {
			base = strconv.Itoa(n - 1)
		}
		c.add(strconv.Itoa(n), base, call(n))
	}
	o := c.outlines()
	added := 0
	for n := 1; n <= calls; n++ {
		for _, m := range outlinesTo(t, o, strconv.Itoa(n), call(n)).Members {
			added += len(m.Value.Rest)
			if long := strings.HasSuffix(string(m.Name), "_ids"); long && n > 1 && m.Value.Base == nil {
				t.Errorf("call %d: %s has no base", n, m.Name)
			}
		}
	}
	if limit := 2 * len(filtered(call(calls))); added > limit {
		t.Errorf("%d bytes of members were read, want at most %d", added, limit)
	}
	outlinesTo(t, c.outlines(), strconv.Itoa(calls), call(calls)) // alone
}

// attributeValues are values that go on as others do.
func attributeValues() *rapid.Generator[string] {
	text := rapid.StringOfN(rapid.SampledFrom([]rune{'a', '"', '\\', 'é', '\n', ']', ',', '{', '5'}), 0, 90, -1)
	return rapid.OneOf(
		rapid.Map(text, strconv.Quote),
		rapid.Map(rapid.IntRange(1, 60), func(n int) string { return strings.ReplaceAll(fmt.Sprint(numbers(n)), " ", ",") }),
		rapid.Map(rapid.IntRange(1, 60), func(n int) string {
			return `"` + strings.ReplaceAll(fmt.Sprint(numbers(n)), " ", ",") + `"`
		}),
		rapid.Map(rapid.SliceOfN(text, 1, 9), func(list []string) string {
			var quoted []string
			for _, s := range list {
				quoted = append(quoted, strconv.Quote(s))
			}
			return "[" + strings.Join(quoted, ",") + "]"
		}),
		rapid.SampledFrom([]string{"1", "12", "123.5e7", "true", "false", `""`, "[]", `{"x0":1,"x1":{"y":1},"z":[{}]}`, strings.Repeat("9", 80)}),
	)
}

// goOn makes a value longer.
func goOn(t *rapid.T, value string) string {
	end := 0
	for _, closing := range []string{`]"`, `"`, `]`} {
		if strings.HasSuffix(value, closing) && len(value) > len(closing)+1 {
			end = len(closing)
			break
		}
	}
	more := rapid.SampledFrom([]string{",7,8", "5,12", ",345", `,\"`, `\\\\`, `x]\"`, `,"s"`}).Draw(t, "more")
	if strings.HasSuffix(value, `]`) && end == 1 && strings.ContainsAny(more, `\x`) || strings.HasSuffix(value, `"`) && more == `,"s"` {
		more = ",6"
	}
	if end == 0 || strings.HasSuffix(value, `"]`) && more == "5,12" {
		return value
	}
	return value[:len(value)-end] + more + value[len(value)-end:]
}

// TestOutlineOfAnyHistory has documents that continue any earlier one, by the deltas that Layout makes and by
// deltas that are cut anywhere.
func TestOutlineOfAnyHistory(t *testing.T) {
	t.Parallel()
	value := attributeValues()
	rapid.Check(t, func(t *rapid.T) {
		c := newChain()
		// Python and people write spaces.
		comma := rapid.SampledFrom([]string{",", ", ", ",\n\t"}).Draw(t, "comma")
		colon := rapid.SampledFrom([]string{":", ": "}).Draw(t, "colon")
		var documents []string
		type member struct{ name, value string }
		var members []member
		for i := range rapid.IntRange(1, 30).Draw(t, "documents") {
			for range rapid.IntRange(0, 4).Draw(t, "edits") {
				switch at := rapid.IntRange(0, len(members)).Draw(t, "at"); {
				case at == len(members):
					name := rapid.SampledFrom([]string{"", "x", `\u0067en_ai.`, "gen_ai.", "gen_ai.prompt."}).Draw(t, "name") + strconv.Itoa(len(members))
					members = append(members, member{name, value.Draw(t, "value")})
				case rapid.IntRange(0, 3).Draw(t, "remove") == 0:
					members = append(members[:at:at], members[at+1:]...)
				case rapid.IntRange(0, 3).Draw(t, "longer") > 0:
					members[at].value = goOn(t, members[at].value)
				case rapid.Bool().Draw(t, "twice"):
					members = append(members, member{members[at].name + "b", members[at].value})
				default:
					members[at].value = value.Draw(t, "other")
				}
			}
			var b strings.Builder
			b.WriteString(`{"head"` + colon + strconv.Itoa(i) + comma + `"attributes"` + colon + `{`)
			for j, m := range members {
				if j > 0 {
					b.WriteString(comma)
				}
				b.WriteString(`"` + m.name + `"` + colon + m.value)
			}
			b.WriteString(`}` + comma + `"end"` + colon + `[` + strconv.Itoa(i/3) + `]}`)
			base := ""
			if i > 0 && rapid.IntRange(0, 9).Draw(t, "whole") > 0 {
				base = strconv.Itoa(rapid.IntRange(max(0, i-3), i-1).Draw(t, "base"))
			}
			id := strconv.Itoa(i)
			c.add(id, base, b.String())
			if base != "" && rapid.IntRange(0, 2).Draw(t, "cut") == 0 {
				n, _ := strconv.Atoi(base)
				c.stored[id] = spandelta.Stored{Base: base, Payload: cutAnywhere(t, documents[n], b.String())}
			}
			documents = append(documents, b.String())
		}
		o := c.outlines()
		for _, i := range rapid.Permutation(numbers(len(documents))).Draw(t, "order") {
			if rapid.IntRange(0, 5).Draw(t, "expand") == 0 {
				expands(t, o.Expander, strconv.Itoa(i), documents[i])
			}
			outlinesTo(t, o, strconv.Itoa(i), documents[i])
		}
	})
}

// cutAnywhere returns a delta that copies parts of the base from random places.
func cutAnywhere(t *rapid.T, base, document string) []byte {
	delta := binary.AppendUvarint([]byte{1}, uint64(len(document)))
	delta = binary.LittleEndian.AppendUint32(delta, spandelta.Sum([]byte(document)))
	until := 0
	for rest := document; rest != ""; {
		n := min(len(rest), rapid.IntRange(1, 120).Draw(t, "piece"))
		from := strings.Index(base, rest[:n])
		for from < 0 && n > 1 {
			n /= 2
			from = strings.Index(base, rest[:n])
		}
		if from < 0 || n < 3 {
			delta = append(binary.AppendUvarint(delta, uint64(n)<<1), rest[:n]...)
		} else {
			for n < len(rest) && from+n < len(base) && base[from+n] == rest[n] && rapid.IntRange(0, 99).Draw(t, "stop") > 0 {
				n++
			}
			delta = binary.AppendVarint(binary.AppendUvarint(delta, uint64(n)<<1|1), int64(from-until))
			until = from + n
		}
		rest = rest[n:]
	}
	return delta
}

// TestOutlineOfOtherForms reads documents of other forms whole, and continues them.
func TestOutlineOfOtherForms(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("long ", 30)
	for _, tc := range []struct{ form, want string }{
		{`{"a":1,"attributes":{"gen_ai.x":1 ,"x":"` + long + `" },"b":2}`, `{"a":1,"attributes":{"x":"` + long + `"},"b":2}`},
		{`{"a":1 ,"attributes":{"x":"` + long + `","gen_ai.y":1},"b":2}`, `{"a":1 ,"attributes":{"x":"` + long + `"},"b":2}`},
		{`{"a":1,"attributes":{ },"b":"` + long + `"}`, `{"a":1,"attributes":{},"b":"` + long + `"}`},
		{`{"attributes":{"x":1},"attributes":{"y":"` + long + `","gen_ai.y":1}}`, `{"attributes":{"x":1},"attributes":{"y":"` + long + `"}}`},
		{`{"a":1,"attributes":null,"b":"` + long + `"}`, ""},
		{`{"a":1,"attributes":[{"x":2}],"b":"` + long + `"}`, ""},
		{`{"a":1,"b":"` + long + `"}`, ""},
		{`[1,"` + long + `"]`, ""},
		{`"` + long + `"`, ""},
		{`{"a":`, ""},
	} {
		c := newChain()
		c.add("1", "", tc.form)
		after := `{"a":1,"attributes":{"x":"` + long + `"},"b":2}`
		c.add("2", "1", after)
		o := c.outlines()
		if got, err := o.Outline("1"); err != nil || outlined(got) != cmp.Or(tc.want, tc.form) {
			t.Errorf("%s: %s, error %v", tc.form, outlined(got), err)
		}
		expands(t, o.Expander, "1", tc.form)
		outlinesTo(t, o, "2", after)
	}
}

// TestOutlineVerifies finds a base that is another document.
func TestOutlineVerifies(t *testing.T) {
	t.Parallel()
	c := newChain()
	c.add("1", "", call(1))
	c.add("2", "1", call(2))
	c.add("3", "2", call(3))
	outlinesTo(t, c.outlines(), "3", call(3))
	for _, id := range []string{"2", "3"} {
		c.stored["1"] = spandelta.Stored{Payload: []byte(strings.Replace(call(1), "0 says", "1 says", 1))}
		if got, err := c.outlines().Outline(id); err == nil {
			t.Errorf("span %s of a damaged base: %.100q", id, outlined(got))
		}
		c.stored["1"] = spandelta.Stored{Payload: []byte(`{"attributes":{}}`)}
		if _, err := c.outlines().Outline(id); err == nil || !strings.Contains(err.Error(), "of a document of 17") {
			t.Errorf("span %s of a short base: error %v", id, err)
		}
	}
}

// TestOutlineCopiedFromWithin copies members of an object in the base's attributes, which are none of the base's members.
func TestOutlineCopiedFromWithin(t *testing.T) {
	t.Parallel()
	const base, before, copied = `{"attributes":{"n":{"x0":1,"x1":2},"y":1}}`, `{"attributes":{`, `"x0":1,"x1":2},"y":1}`
	document := before + copied
	delta := binary.AppendUvarint([]byte{1}, uint64(len(document)))
	delta = binary.LittleEndian.AppendUint32(delta, spandelta.Sum([]byte(document)))
	delta = append(binary.AppendUvarint(delta, uint64(len(before))<<1), before...)
	delta = binary.AppendVarint(binary.AppendUvarint(delta, uint64(len(copied))<<1|1), int64(strings.Index(base, copied)))
	c := newChain()
	c.add("1", "", base)
	c.stored["2"] = spandelta.Stored{Base: "1", Payload: delta}
	outlinesTo(t, c.outlines(), "2", document)
}
