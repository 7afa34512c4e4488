package openai

import "github.com/agl-go/agl/internal/rawjson"

// Members calls yield for each member of a raw object with its name, as spelled
// between the quotes, and its value. It reports whether the object is complete.
func Members(raw []byte, yield func(name, value []byte)) bool {
	return rawjson.EachMember(raw, func(m rawjson.Member) { yield(m.Name, m.Value) })
}

// Elements is Members for the elements of a raw array.
func Elements(raw []byte, yield func(value []byte)) bool {
	return rawjson.EachElement(raw, yield)
}
