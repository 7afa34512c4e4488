package adapter

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// nested is a value made from dotted keys: a leaf, an object that keeps its order, or a list.
type nested struct {
	raw     jsontext.Value // of a leaf
	members map[string]*nested
	keys    []string // of members, in order
	list    []*nested
	isList  bool
}

func (n *nested) isObject() bool { return n != nil && n.members != nil }

// empty reports whether n is a list or an object without elements, or nil.
func (n *nested) empty() bool {
	return n == nil || n.raw == nil && len(n.list) == 0 && len(n.members) == 0
}

func newObject() *nested { return &nested{members: map[string]*nested{}} }

func (n *nested) get(key string) *nested {
	if n == nil {
		return nil
	}
	return n.members[key]
}

func (n *nested) set(key string, value *nested) {
	if _, ok := n.members[key]; !ok {
		n.keys = append(n.keys, key)
	}
	n.members[key] = value
}

func (n *nested) remove(keys ...string) {
	for _, key := range keys {
		if _, ok := n.members[key]; ok {
			delete(n.members, key)
			n.keys = slices.DeleteFunc(n.keys, func(k string) bool { return k == key })
		}
	}
}

// str returns the text of a leaf that is a string.
func (n *nested) str() (string, bool) {
	if n == nil || n.raw == nil {
		return "", false
	}
	return stringValue(n.raw)
}

// text returns a string as it is and any other value as JSON text; nil is "".
func (n *nested) text() string {
	if s, ok := n.str(); ok || n == nil {
		return s
	}
	return string(n.json())
}

// json returns the value as JSON; nil is null.
func (n *nested) json() jsontext.Value {
	if n == nil {
		return jsontext.Value("null")
	}
	return n.appendJSON(nil)
}

func (n *nested) appendJSON(dst []byte) []byte {
	switch {
	case n.isList:
		return rawjson.AppendArray(dst, n.list, func(dst []byte, element *nested) []byte { return element.appendJSON(dst) })
	case n.members != nil:
		o := rawjson.NewObject(dst)
		for _, key := range n.keys {
			o.AnyKey(key)
			o = n.members[key].appendJSON(o)
		}
		return o.End()
	default:
		return append(dst, n.raw...)
	}
}

// unflatten joins the attributes below a prefix into one value. Each dot is a level; an object whose keys are exactly
// 0 to n-1 becomes a list. Where a key is both a value and a level, the later one counts. An attribute whose key is
// the prefix itself is an error. Without attributes below the prefix the value is an empty object.
func (a attributes) unflatten(prefix string) (*nested, error) {
	if _, ok := a.get(prefix); ok {
		return nil, agl.Errorf(agl.CodeInvalid, "attribute %q: must have no value of its own, only attributes below it", prefix)
	}
	root := newObject()
	for _, attr := range a.below(prefix) {
		parts := strings.Split(attr.key, ".")
		if len(parts) > maxDepth {
			return nil, agl.Errorf(agl.CodeInvalid, "attribute %q…: %d levels, at most %d are allowed", prefix, len(parts), maxDepth)
		}
		at := root
		for _, part := range parts[:len(parts)-1] {
			next := at.get(part)
			if !next.isObject() {
				next = newObject()
				at.set(part, next)
			}
			at = next
		}
		at.set(parts[len(parts)-1], &nested{raw: attr.raw})
	}
	root.listify()
	return root, nil
}

// listify turns objects whose keys are exactly 0 to n-1 into lists.
func (n *nested) listify() {
	for _, member := range n.members {
		member.listify()
	}
	if len(n.members) == 0 {
		return
	}
	list := make([]*nested, len(n.members))
	for key, member := range n.members {
		i, err := strconv.Atoi(key)
		if err != nil || i < 0 || i >= len(list) || strconv.Itoa(i) != key {
			return
		}
		list[i] = member
	}
	*n = nested{list: list, isList: true}
}

// firstUnflattened unflattens the first prefix that has attributes below it. It returns nil if none has.
func (a attributes) firstUnflattened(prefixes ...string) (*nested, error) {
	for _, prefix := range prefixes {
		value, err := a.unflatten(prefix)
		if err != nil {
			return nil, err
		}
		if !value.empty() {
			return value, nil
		}
	}
	return nil, nil //nolint:nilnil // a nil *nested is null
}

// group joins attributes into one value by the rules for conversations. A level at which any key begins with a number
// is a list, ordered by number, without gaps and without the keys that are not numbers. Any other level is an object.
func (a attributes) group(depth int) (*nested, error) {
	if depth > maxDepth {
		return nil, agl.Errorf(agl.CodeInvalid, "attributes nested deeper than %d levels", maxDepth)
	}
	for _, attr := range a {
		if head, _, _ := strings.Cut(attr.key, "."); isDigits(head) {
			return a.groupList(depth)
		}
	}
	object := newObject()
	levels := map[string]attributes{}
	var order []string
	for _, attr := range a {
		head, rest, dotted := strings.Cut(attr.key, ".")
		if !dotted {
			object.set(attr.key, &nested{raw: attr.raw})
			continue
		}
		if _, ok := levels[head]; !ok {
			order = append(order, head)
		}
		levels[head] = append(levels[head], attribute{rest, attr.raw})
	}
	for _, head := range order {
		value, err := levels[head].group(depth + 1)
		if err != nil {
			return nil, err
		}
		object.set(head, value)
	}
	return object, nil
}

func (a attributes) groupList(depth int) (*nested, error) {
	byIndex := map[string]attributes{}
	var order []string
	for _, attr := range a {
		head, rest, _ := strings.Cut(attr.key, ".")
		if !isDigits(head) {
			continue
		}
		head = trimZeros(head)
		if _, ok := byIndex[head]; !ok {
			order = append(order, head)
		}
		byIndex[head] = append(byIndex[head], attribute{rest, attr.raw})
	}
	slices.SortFunc(order, compareDigits)
	list := &nested{isList: true}
	for _, head := range order {
		value, err := byIndex[head].group(depth + 1)
		if err != nil {
			return nil, err
		}
		list.list = append(list.list, value)
	}
	return list, nil
}

// compareDigits orders decimal numbers without leading zeros by value.
func compareDigits(a, b string) int {
	return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
}

// trimZeros removes leading zeros; zero becomes "".
func trimZeros(digits string) string { return strings.TrimLeft(digits, "0") }

func isDigits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
