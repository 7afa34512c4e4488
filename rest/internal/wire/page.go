package wire

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// Page is the answer to a query, for a reader.
type Page[T any] struct {
	Items  []T `json:"items"`
	Limit  int `json:"limit"`
	Offset int `json:"offset"`
	Total  int `json:"total"`
}

// AppendPage appends the answer to a query; one appends an item.
func AppendPage[T any](dst []byte, page agl.Page[T], one func(dst []byte, item *T) []byte) []byte {
	dst = append(dst, `{"items":[`...)
	for i := range page.Items {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = one(dst, &page.Items[i])
	}
	o := rawjson.Object(append(dst, ']'))
	o.Int("limit", int64(page.Limit))
	o.Int("offset", int64(page.Offset))
	o.Int("total", int64(page.Total))
	return o.End()
}
