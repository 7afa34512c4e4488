package rest

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// filters are the parameters of a query, from the query string or from the body
// of a search. A route uses those that its operation has.
type filters struct {
	agl.Paging
	logic   agl.FilterLogic
	texts   map[string]*string // by wire name
	lists   func(dec *jsontext.Decoder, name string) (known bool, err error)
	queried func(name string, values []string) error // lists, from the query string
}

// newFilters returns filters with the defaults of the wire and the texts given.
func newFilters(sortBy string, texts map[string]*string) *filters {
	return &filters{Paging: agl.Paging{Limit: -1, SortBy: sortBy}, texts: texts}
}

func sortOrders() []agl.SortOrder     { return []agl.SortOrder{agl.Ascending, agl.Descending} }
func filterLogics() []agl.FilterLogic { return []agl.FilterLogic{agl.FilterAnd, agl.FilterOr} }

// UnmarshalJSONFrom reads the body of a search.
func (f *filters) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	return read(dec).Object(func(name []byte) error {
		switch string(name) {
		case "limit":
			return rawjson.Int(read(dec), &f.Limit)
		case "offset":
			return rawjson.Int(read(dec), &f.Offset)
		case "sort_by":
			return read(dec).StringOrNull(&f.SortBy)
		case "sort_order":
			return rawjson.Enum(read(dec), &f.Order, sortOrders())
		case "filter_logic":
			return rawjson.Enum(read(dec), &f.logic, filterLogics())
		}
		if text, ok := f.texts[string(name)]; ok {
			return read(dec).StringOrNull(text)
		}
		if f.lists != nil {
			if known, err := f.lists(dec, string(name)); known || err != nil {
				return err
			}
		}
		return dec.SkipValue()
	})
}

// parse reads a query string. Of a repeated scalar the last one counts.
func (f *filters) parse(query url.Values) error {
	// In the order of the names, so that of several faults the same one is told.
	for _, name := range sortedKeys(query) {
		values := query[name]
		last := values[len(values)-1]
		var err error
		switch name {
		case "limit":
			f.Limit, err = queryInt(name, last)
		case "offset":
			f.Offset, err = queryInt(name, last)
		case "sort_by":
			f.SortBy = last
			if last == "" {
				f.SortBy = " " // names no field, and must not read as the default
			}
		case "sort_order":
			f.Order, err = queryEnum(name, -1, last, sortOrders())
		case "filter_logic":
			f.logic, err = queryEnum(name, -1, last, filterLogics())
		default:
			if text, ok := f.texts[name]; ok {
				*text = last
			} else if f.queried != nil {
				err = f.queried(name, values)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func sortedKeys(query url.Values) []string {
	keys := make([]string, 0, len(query))
	for k := range query {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func queryInt(name, value string) (int, error) {
	i, ok := rawjson.ParseInt(value)
	if !ok {
		return 0, queryError(name, -1, "int_parsing", rawjson.NotParsedInt, value)
	}
	return int(i), nil
}

func queryEnum[S ~string](name string, index int, value string, allowed []S) (S, error) {
	if !slices.Contains(allowed, S(value)) {
		return "", queryError(name, index, "literal_error", rawjson.NotAllowed(allowed), value)
	}
	return S(value), nil
}

func queryEnums[S ~string](name string, values []string, allowed []S) ([]S, error) {
	list := make([]S, len(values))
	for i, v := range values {
		var err error
		if list[i], err = queryEnum(name, i, v, allowed); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// query fills f from the query string, or from the body when search is set. What
// can be sorted by, and where a page may begin, is for the store to say.
func (c *call) query(f *filters, search bool) error {
	if search {
		if err := c.decode(f, true); err != nil {
			return err
		}
	} else {
		values, err := url.ParseQuery(c.request.URL.RawQuery)
		if err != nil {
			return detailError(http.StatusBadRequest, "the query string is malformed: "+err.Error())
		}
		if err := f.parse(values); err != nil {
			return err
		}
	}
	if f.Limit == 0 { // which means all to a store
		return detailError(http.StatusBadRequest, "Limit must be greater than 0 or -1 for no limit")
	}
	return nil
}

// sendPage answers with a page.
func sendPage[T any](c *call, page agl.Page[T], one func(dst []byte, item *T) []byte) error {
	out := c.out
	out = append(out, `{"items":[`...)
	for i := range page.Items {
		if i > 0 {
			out = append(out, ',')
		}
		out = one(out, &page.Items[i])
	}
	out = append(out, `],"limit":`...)
	out = strconv.AppendInt(out, int64(page.Limit), 10)
	out = append(out, `,"offset":`...)
	out = strconv.AppendInt(out, int64(page.Offset), 10)
	out = append(out, `,"total":`...)
	out = strconv.AppendInt(out, int64(page.Total), 10)
	return c.send(http.StatusOK, append(out, '}'))
}

// appendItem appends a noun whose AppendJSON has a pointer receiver.
func appendItem[T any, P interface {
	*T
	rawjson.Appender
}](dst []byte, item *T) []byte {
	return P(item).AppendJSON(dst)
}

// sendList answers with a JSON array.
func sendList[T any, P interface {
	*T
	rawjson.Appender
}](c *call, status int, items []T,
) error {
	return c.send(status, rawjson.AppendList[T, P](c.out, items))
}
