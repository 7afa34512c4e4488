package spandelta_test

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/agl-go/agl/internal/spandelta"
)

// chain stores documents, each as a delta from the one that the caller names.
type chain struct {
	codec   *spandelta.Codec
	seed    maphash.Seed
	stored  map[string]spandelta.Stored
	layouts map[string]*spandelta.Layout
}

func newChain() *chain {
	return &chain{spandelta.NewCodec(), maphash.MakeSeed(), map[string]spandelta.Stored{}, map[string]*spandelta.Layout{}}
}

func (c *chain) add(id, base, document string) spandelta.Delta {
	l := spandelta.NewLayout(c.seed, []byte(document))
	c.layouts[id] = l
	if base == "" {
		c.stored[id] = spandelta.Stored{Payload: []byte(document)}
		return spandelta.Delta{Bytes: []byte(document)}
	}
	d := c.layouts[base].Delta([]byte(document), l)
	d.Bytes = c.codec.Compress(d)
	c.stored[id] = spandelta.Stored{Base: base, Payload: d.Bytes}
	return d
}

func (c *chain) expander() *spandelta.Expander {
	return spandelta.NewExpander(c.codec, func(id string) (spandelta.Stored, bool) {
		s, found := c.stored[id]
		return s, found
	})
}

// call is the document of the n-th call of a conversation.
func call(n int) string {
	var b strings.Builder
	fmt.Fprintf(&b, `{"rollout_id":"ro-1","attempt_id":"at-1","sequence_id":%d,"span_id":"%016x","attributes":{"gen_ai.system":"openai"`, n, n)
	var list strings.Builder
	for i := range n {
		fmt.Fprintf(&b, `,"gen_ai.prompt.%d.role":"user","gen_ai.prompt.%d.content":%q`, i, i, strings.Repeat(strconv.Itoa(i)+" says \"", 40))
		for j := range 100 {
			list.WriteString("," + strconv.Itoa(i*100+j))
		}
	}
	ids := "[" + list.String()[1:] + "]"
	fmt.Fprintf(&b, `,"temperature":1,"prompt_token_ids":%s,"text_ids":%q},"resource":{"attributes":{"service.name":"x","n":%d},"schema_url":""}}`, ids, ids, n)
	return b.String()
}

func TestConversation(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("long, and it has one goroutine")
	}
	const calls = 200
	c := newChain()
	largest := 0
	for n := 1; n <= calls; n++ {
		base := ""
		if n > 1 {
			base = strconv.Itoa(n - 1)
		}
		d := c.add(strconv.Itoa(n), base, call(n))
		if n > 1 {
			largest = max(largest, len(d.Bytes))
		}
	}
	if limit := len(call(1)); largest > limit {
		t.Errorf("the largest delta has %d bytes, want at most %d", largest, limit)
	}
	// In order, the last one alone, and one in the middle.
	inOrder := c.expander()
	for n := 1; n <= calls; n++ {
		expands(t, inOrder, strconv.Itoa(n), call(n))
	}
	expands(t, c.expander(), strconv.Itoa(calls), call(calls))
	expands(t, c.expander(), strconv.Itoa(calls/2), call(calls/2))
}

func expands(t interface {
	Helper()
	Fatalf(format string, args ...any)
}, e *spandelta.Expander, id, want string) {
	t.Helper()
	got, err := e.Expand(id)
	if err != nil || string(got) != want {
		t.Fatalf("span %s is %.200q, error %v, want %.200q", id, got, err, want)
	}
}

// TestFarParts has parts that are nowhere near their places in the base: in the opposite order, and under other names.
func TestFarParts(t *testing.T) {
	t.Parallel()
	for _, n := range []int{8, 400} {
		var first, reversed, renamed []string
		for i := range n {
			value := strconv.Quote(strings.Repeat(strconv.Itoa(i)+" ", 40))
			first = append(first, fmt.Sprintf(`"a%d":%s`, i, value))
			reversed = append([]string{fmt.Sprintf(`"a%d":%s`, i, value)}, reversed...)
			renamed = append([]string{fmt.Sprintf(`"b%d":%s`, i, value)}, renamed...)
		}
		c := newChain()
		c.add("1", "", `{"x":1,`+strings.Join(first, ",")+`}`)
		for id, members := range map[string][]string{"reversed": reversed, "renamed": renamed} {
			document := `{"x":1,` + strings.Join(members, ",") + `}`
			if d := c.add(id, "1", document); d.Copied < len(document)*3/4 {
				t.Errorf("%d members %s: %d bytes of %d are those of the base, want most", n, id, d.Copied, len(document))
			}
			expands(t, c.expander(), id, document)
		}
	}
}

// TestPlainDocuments has documents that are no spans.
func TestPlainDocuments(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{
		{`{}`, `{}`},
		{`{"a":1}`, `{"a":1}`},
		{`{"a":1}`, `"text"`},
		{`"text"`, `"text"`},
		{``, `{"a":1}`},
		{`{"a":1}`, ``},
		{`{"a":{"b":{"c":{"d":1}}}}`, `{"a":{"b":{"c":{"d":2}}}}`},
		{"{ \"a\" : 1 ,\n\"b\":[1, 2]}", "{ \"a\" : 1 ,\n\"b\":[1, 2, 3]}"},
		{`{"a":1,"a":2}`, `{"a":2,"a":1}`},
		{`{"a":1`, `{"a":1,"b"`},
	} {
		c := newChain()
		c.add("base", "", pair[0])
		c.add("next", "base", pair[1])
		expands(t, c.expander(), "next", pair[1])
	}
}

// TestAnyHistory has histories of objects with random edits, each a delta from any earlier
// one.
func TestAnyHistory(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := newChain()
		value := rapid.OneOf(
			rapid.Map(rapid.IntRange(0, 5), func(n int) string { return strconv.Quote(strings.Repeat(`a "`, n)) }),
			rapid.Map(rapid.IntRange(20, 99), func(n int) string { return strconv.Quote(strings.Repeat(`text "`, n)) }),
			rapid.Map(rapid.IntRange(1, 60), func(n int) string { return strings.ReplaceAll(fmt.Sprint(numbers(n)), " ", ",") }),
			rapid.Just(`{"x":{"y":1},"z":[{}]}`),
		)
		var documents []string
		members := []string{}
		for i := range rapid.IntRange(1, 30).Draw(t, "documents") {
			for range rapid.IntRange(0, 4).Draw(t, "edits") {
				switch at := rapid.IntRange(0, len(members)).Draw(t, "at"); {
				case at == len(members):
					members = append(members, value.Draw(t, "value"))
				case rapid.Bool().Draw(t, "remove"):
					members = append(members[:at:at], members[at+1:]...)
				case rapid.Bool().Draw(t, "longer") && strings.HasSuffix(members[at], "]"):
					members[at] = members[at][:len(members[at])-1] + ",7,8]"
				default:
					members[at] = value.Draw(t, "other")
				}
			}
			var b strings.Builder
			b.WriteString(`{"head":` + strconv.Itoa(i) + `,"attributes":{`)
			for j, m := range members {
				if j > 0 {
					b.WriteByte(',')
				}
				b.WriteString(`"` + strconv.Itoa(j) + `":` + m)
			}
			b.WriteString(`},"end":null}`)
			base := ""
			if i > 0 && rapid.IntRange(0, 9).Draw(t, "whole") > 0 {
				base = strconv.Itoa(rapid.IntRange(0, i-1).Draw(t, "base"))
			}
			c.add(strconv.Itoa(i), base, b.String())
			documents = append(documents, b.String())
		}
		e := c.expander()
		for _, i := range rapid.Permutation(numbers(len(documents))).Draw(t, "order") {
			expands(t, e, strconv.Itoa(i), documents[i])
		}
	})
}

func numbers(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

func TestMissingAndCircular(t *testing.T) {
	t.Parallel()
	c := newChain()
	c.add("1", "", call(1))
	c.add("2", "1", call(2))
	c.add("3", "2", call(3))
	delete(c.stored, "1")
	var missing *spandelta.MissingError
	if _, err := c.expander().Expand("3"); !errors.As(err, &missing) || missing.ID != "1" {
		t.Errorf("error %v, want that span 1 is missing", err)
	}
	c.stored["1"] = spandelta.Stored{Base: "3", Payload: c.stored["3"].Payload}
	if _, err := c.expander().Expand("3"); err == nil || !strings.Contains(err.Error(), "continues it") {
		t.Errorf("error %v, want a circle", err)
	}
}

// FuzzExpand checks that no bytes are taken for a delta of a document that they do not give.
func FuzzExpand(f *testing.F) {
	c := newChain()
	c.add("1", "", call(1))
	f.Add(c.add("2", "1", call(2)).Bytes)
	f.Add([]byte{1, 0, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, delta []byte) {
		e := spandelta.NewExpander(c.codec, func(id string) (spandelta.Stored, bool) {
			if id == "base" {
				return spandelta.Stored{Payload: []byte(call(1))}, true
			}
			return spandelta.Stored{Base: "base", Payload: delta}, true
		})
		document, err := e.Expand("2")
		if err == nil && bytes.Equal(delta, document) && len(delta) > 0 {
			t.Errorf("the delta %q stands for itself", delta)
		}
	})
}

// Conversations that run beside each other in one attempt continue their own, and what was written before keeps its
// bytes: deltas that are compared share memory.
func TestBatchComparesHeads(t *testing.T) {
	t.Parallel()
	c := newChain()
	heads := spandelta.NewHeads(c.codec, spandelta.DefaultMemory)
	batch := heads.Begin()
	documents, copies, deltas := map[string]string{}, map[string][]byte{}, 0
	for n := range 12 {
		turn := 3 + n/2 // each is written twice: the second delta is short, and so is not compressed
		for i := range 5 {
			talk := i * (n%4 + 1) % 5 // in several orders, so that its own one is any of those that are compared
			id := fmt.Sprint(talk, "/", n)
			document := strings.ReplaceAll(call(turn), "says", strings.Repeat(strconv.Itoa(talk), 20*(talk+1)))
			base, delta := batch.Add(spandelta.Attempt{RolloutID: "ro", AttemptID: "at"}, id, "call", []byte(document), heads.Layout([]byte(document)))
			documents[id], c.stored[id] = document, spandelta.Stored{Payload: []byte(document)}
			if base != nil {
				c.stored[id], copies[id] = spandelta.Stored{Base: base.ID, Payload: delta}, bytes.Clone(delta)
				if deltas++; n > 0 && !strings.HasPrefix(base.ID, strconv.Itoa(talk)+"/") {
					t.Errorf("%s continues %s", id, base.ID)
				}
			}
		}
		if n%3 == 2 {
			batch.Commit()
			batch = heads.Begin()
		}
	}
	if deltas < 55 {
		t.Errorf("%d deltas, want one for each document but the first of each conversation", deltas)
	}
	for id, written := range copies {
		if !bytes.Equal(c.stored[id].Payload, written) {
			t.Errorf("the delta of %s has changed", id)
		}
	}
	e := c.expander()
	for id, document := range documents {
		expands(t, e, id, document)
	}
}
