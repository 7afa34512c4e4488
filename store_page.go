package agl

import (
	"context"
	"iter"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/internal/rawjson"
)

// SortOrder is the direction of a sorted query.
type SortOrder string

// The sort orders. The empty one is Ascending.
const (
	Ascending  SortOrder = "asc"
	Descending SortOrder = "desc"
)

// FilterLogic says whether a query needs all of its filters to match or one.
type FilterLogic string

// The filter logics. The empty one is FilterAnd.
const (
	FilterAnd FilterLogic = "and"
	FilterOr  FilterLogic = "or"
)

// Paging selects and sorts a part of the result of a query. Its zero value selects everything, in the default order.
type Paging struct {
	Limit  int    // the most items to return; 0 and -1 mean all
	Offset int    // how many matches to skip
	SortBy string // the wire name of a scalar field; empty is the query's default
	Order  SortOrder
}

// Page is a part of the result of a query.
type Page[T any] struct {
	Items  []T `json:"items"`
	Limit  int `json:"limit"` // -1 means all
	Offset int `json:"offset"`
	Total  int `json:"total"` // matches before paging
}

// Pages yields the items that a query finds, which it reads in pages of at most size items: from p.Offset on, and p.Limit of
// them at most. It stops after the first error. Items that move in the order meanwhile may be missed, or come twice.
func Pages[T any](ctx context.Context, p Paging, size int, query func(context.Context, Paging) (Page[T], error)) iter.Seq2[*T, error] {
	return func(yield func(*T, error) bool) {
		next := p
		for left := p.Limit; p.Limit <= 0 || left > 0; {
			next.Limit = size
			if p.Limit > 0 {
				next.Limit = min(size, left)
			}
			page, err := query(ctx, next)
			if err != nil {
				yield(nil, err)
				return
			}
			for i := range page.Items {
				if !yield(&page.Items[i], nil) {
					return
				}
			}
			left -= len(page.Items)
			next.Offset += len(page.Items)
			if len(page.Items) == 0 || next.Offset >= page.Total {
				return
			}
		}
	}
}

// MarshalJSON returns the wire form.
func (p Page[T]) MarshalJSON() ([]byte, error) {
	items, err := json.Marshal(p.Items)
	if err != nil {
		return nil, err
	}
	o := rawjson.NewObject(nil)
	o.Raw("items", items)
	o.Int("limit", int64(p.Limit))
	o.Int("offset", int64(p.Offset))
	o.Int("total", int64(p.Total))
	return o.End(), nil
}
