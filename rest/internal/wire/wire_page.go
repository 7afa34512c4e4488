package wire

import (
	"github.com/agl-go/agl/internal/rawjson"
)

// PageHead begins the answer to a query, up to its first item.
const PageHead = `{"items":[`

// AppendPageTail appends the rest of the answer after its last item.
func AppendPageTail(dst []byte, limit, offset, total int) []byte {
	o := rawjson.Object(append(dst, ']'))
	o.Int("limit", int64(limit))
	o.Int("offset", int64(offset))
	o.Int("total", int64(total))
	return o.End()
}
