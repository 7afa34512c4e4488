package rest

import (
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
)

// object builds the JSON object of a request, member by member.
type object []byte

func newObject() object { return object{'{'} }

func (o *object) key(name string) {
	if len(*o) > 1 {
		*o = append(*o, ',')
	}
	*o = append(appendString(*o, name), ':')
}

func (o *object) raw(name string, value []byte) {
	o.key(name)
	*o = append(*o, value...)
}

func (o *object) text(name, value string) {
	o.key(name)
	*o = appendString(*o, value)
}

// filled adds a text that is not empty.
func (o *object) filled(name, value string) {
	if value != "" {
		o.text(name, value)
	}
}

// nullable adds a text unless it is null.
func (o *object) nullable(name string, value agl.Null[string]) {
	if value.Valid {
		o.text(name, value.V)
	}
}

func (o *object) integer(name string, value int) {
	o.key(name)
	*o = strconv.AppendInt(*o, int64(value), 10)
}

func (o *object) float(name string, value float64) {
	o.key(name)
	*o = strconv.AppendFloat(*o, value, 'g', -1, 64)
}

func (o *object) seconds(name string, value time.Duration) { o.float(name, value.Seconds()) }

func (o *object) boolean(name string, value bool) {
	o.key(name)
	*o = strconv.AppendBool(*o, value)
}

func (o *object) document(name string, value agl.JSONAppender) {
	o.key(name)
	*o = value.AppendJSON(*o)
}

// given adds pass-through JSON unless it is nil.
func (o *object) given(name string, value jsontext.Value) {
	if value != nil {
		o.raw(name, value)
	}
}

func (o *object) end() []byte { return append(*o, '}') }

// texts adds a list; a nil one is left out, an empty one is not.
func texts[S ~string](o *object, name string, values []S) {
	if values == nil {
		return
	}
	o.key(name)
	*o = append(*o, '[')
	for i, v := range values {
		if i > 0 {
			*o = append(*o, ',')
		}
		*o = appendString(*o, string(v))
	}
	*o = append(*o, ']')
}

func (o *object) paging(p agl.Paging) {
	if p.Limit != 0 {
		o.integer("limit", p.Limit)
	}
	if p.Offset != 0 {
		o.integer("offset", p.Offset)
	}
	o.filled("sort_by", p.SortBy)
	o.filled("sort_order", string(p.Order))
}
