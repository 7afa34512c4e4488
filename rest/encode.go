package rest

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

func newObject() rawjson.Object { return rawjson.NewObject(nil) }

// nullable adds a text unless it is null.
func nullable(o *rawjson.Object, name string, value agl.Null[string]) {
	if value.Valid {
		o.String(name, value.V)
	}
}

// given adds pass-through JSON unless it is nil.
func given(o *rawjson.Object, name string, value []byte) {
	if value != nil {
		o.Raw(name, value)
	}
}

// texts adds a list; a nil one is left out, an empty one is not.
func texts[S ~string](o *rawjson.Object, name string, values []S) {
	if values != nil {
		o.Key(name)
		*o = rawjson.AppendArray(*o, values, rawjson.AppendString[S])
	}
}

func paging(o *rawjson.Object, p agl.Paging) {
	if p.Limit != 0 {
		o.Int("limit", int64(p.Limit))
	}
	if p.Offset != 0 {
		o.Int("offset", int64(p.Offset))
	}
	o.NonEmpty("sort_by", p.SortBy)
	o.NonEmpty("sort_order", string(p.Order))
}
