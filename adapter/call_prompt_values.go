package adapter

import (
	"bytes"
	"slices"

	"github.com/agl-go/agl"
)

// promptValues reads prompts from the values of spans in short form. Of a prompt that continues another one, it reads
// only the rest.
type promptValues struct {
	spans *agl.ShortSpans
	first map[*agl.Span]int // the first value of a span
	read  []*promptValue    // by index in the values; nil if not read yet
}

// promptValue is a prompt that was read.
type promptValue struct {
	ids []int32 // as adapters return them

	// The rest is known only of a value that others can continue: a list of token ids, or a string that spells one.
	shared  *sharedIDs // nil if no other value can continue it
	closing string     // what comes after the last id
	size    int        // bytes of the value
	last    []byte     // the last id as it is spelled
}

func newPromptValues(spans *agl.ShortSpans) promptValues {
	v := promptValues{spans: spans, first: map[*agl.Span]int{}, read: make([]*promptValue, len(spans.Values))}
	for i, value := range slices.Backward(spans.Values) {
		v.first[&spans.Spans[value.Span]] = i
	}
	return v
}

// find returns the index of the value of a span's attribute.
func (v *promptValues) find(span *agl.Span, name string) (i int, found bool) {
	i, found = v.first[span]
	for ; found && i < len(v.spans.Values) && &v.spans.Spans[v.spans.Values[i].Span] == span; i++ {
		if v.spans.Values[i].Name == name {
			return i, true
		}
	}
	return 0, false
}

// tokenIDs reads a value as literalTokenIDs does.
func (v *promptValues) tokenIDs(prompts *promptReader, i int) []int32 {
	// A chain of bases can be too long for recursion.
	var path []int
	for ; i >= 0 && v.read[i] == nil; i = v.spans.Values[i].Base {
		path = append(path, i)
	}
	for _, next := range slices.Backward(path) {
		i = next
		if v.read[i] = v.continuation(i); v.read[i] == nil {
			v.read[i] = readPromptValue(prompts, v.spans.AppendValue(nil, i))
		}
	}
	return v.read[i].ids
}

// readPromptValue reads a whole value.
func readPromptValue(prompts *promptReader, raw []byte) *promptValue {
	p := &promptValue{size: len(raw)}
	list := []byte(nil)
	switch {
	case bytes.HasPrefix(raw, []byte("[")) && bytes.HasSuffix(raw, []byte("]")):
		p.closing, list = "]", raw
	case bytes.HasPrefix(raw, []byte(`"[`)) && bytes.HasSuffix(raw, []byte(`]"`)) && bytes.IndexByte(raw, '\\') < 0:
		p.closing, list = `]"`, raw[1:len(raw)-1]
	}
	if read, ok := prompts.read(list); ok && read.n > 0 {
		p.ids, p.shared = read.prompt(), read.ids
		p.last = list[1+bytes.LastIndexAny(list[:len(list)-1], "[,") : len(list)-1]
		return p
	}
	p.ids = literalTokenIDs(raw, prompts.tokenIDs)
	return p
}

// continuation reads a value that continues the list of its base after the last id, or within it. It returns nil for
// any other value.
func (v *promptValues) continuation(i int) *promptValue {
	value := &v.spans.Values[i]
	if value.Base < 0 {
		return nil
	}
	base := v.read[value.Base]
	if base.size == value.Shared && len(value.Rest) == 0 {
		return base
	}
	end := base.size - len(base.closing)
	last := end - len(base.last)
	if base.shared == nil || value.Shared < last || value.Shared > end {
		return nil
	}
	list, ok := bytes.CutSuffix(append(slices.Clone(base.last[:value.Shared-last]), value.Rest...), []byte(base.closing))
	if !ok {
		return nil
	}
	p := &promptValue{size: value.Shared + len(value.Rest), closing: base.closing, last: list[1+bytes.LastIndexByte(list, ','):]}
	known := len(base.ids)
	first, others, more := bytes.Cut(list, comma())
	if !bytes.Equal(first, base.last) {
		known, others, more = known-1, list, true
	}
	if !more {
		p.ids, p.shared = base.ids, base.shared
		return p
	}
	p.shared = base.shared.grow(known, 1+bytes.Count(others, comma()))
	ids, ok := appendTokenIDs(p.shared.ids, others)
	if !ok {
		return nil
	}
	p.shared.ids = ids
	p.ids = p.shared.prompt()
	return p
}
