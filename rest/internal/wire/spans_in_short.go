package wire

import (
	"unicode/utf8"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// SpansInShort answers a query of spans that names values. An answer without values has them in the spans.
type SpansInShort struct{ agl.ShortSpans }

// AppendJSON appends the answer.
func (s SpansInShort) AppendJSON(dst []byte) []byte {
	o := rawjson.NewObject(dst)
	o.Key("items")
	o = rawjson.AppendList(o, s.Spans)
	o.Key("values")
	o = append(o, '[')
	for i := range s.Values {
		if i > 0 {
			o = append(o, ',')
		}
		o = s.appendValue(o, i)
	}
	o = append(o, ']')
	return o.End()
}

// appendValue appends a value. One that goes on within a character cannot be text, so it is sent whole.
func (s SpansInShort) appendValue(dst []byte, i int) []byte {
	v := s.Values[i]
	if !utf8.Valid(v.Rest) {
		v.Base, v.Shared, v.Rest = -1, 0, s.AppendValue(nil, i)
	}
	o := rawjson.NewObject(dst)
	o.Int("span", int64(v.Span))
	o.String("name", v.Name)
	o.Int("base", int64(v.Base))
	o.Int("shared", int64(v.Shared))
	o.String("rest", string(v.Rest))
	return o.End()
}

// UnmarshalJSON reads the answer.
func (s *SpansInShort) UnmarshalJSON(answer []byte) error {
	var doc struct {
		Items  []agl.Span `json:"items"`
		Values []struct {
			Span   int    `json:"span"`
			Name   string `json:"name"`
			Base   int    `json:"base"`
			Shared int    `json:"shared"`
			Rest   string `json:"rest"`
		} `json:"values"`
	}
	if err := rawjson.Unmarshal(answer, &doc); err != nil {
		return err
	}
	s.Spans, s.Values = doc.Items, make([]agl.SpanValue, len(doc.Values))
	for i, v := range doc.Values {
		most := 0 // bytes of the base
		if v.Base >= 0 && v.Base < i {
			most = s.Values[v.Base].Shared + len(s.Values[v.Base].Rest)
		}
		if v.Span < 0 || v.Span >= len(s.Spans) || v.Base < -1 || v.Base >= i || v.Shared < 0 || v.Shared > most {
			return agl.Errorf(agl.CodeInternal, "values[%d]: got span %d, base %d and shared %d, which do not exist", i, v.Span, v.Base, v.Shared)
		}
		s.Values[i] = agl.SpanValue{Span: v.Span, Name: v.Name, Base: v.Base, Shared: v.Shared, Rest: []byte(v.Rest)}
	}
	return nil
}
