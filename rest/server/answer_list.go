package server

import (
	"hash/maphash"
	"math"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

const (
	// firstItems is the number of items that the first read of a list asks for, more than the default page has. Later
	// reads ask for about laterBytes, at most maxItems items.
	firstItems = 128
	maxItems   = 4096
	laterBytes = 4 << 20
	// maxPasses bounds how often a list is read whose order may change.
	maxPasses = 3
)

// listing is a query whose answer may be too large for memory. It is read and sent in parts.
//
// after or key says how to deal with changes between the reads.
type listing[T any] struct {
	paging *agl.Paging                  // of the query; read returns the items that it selects
	read   func() (agl.Page[T], error)  // queries the store
	one    func([]byte, *T) []byte      // appends an item
	after  *position[T]                 // makes read begin after an item
	key    func(h *maphash.Hash, it *T) // hashes the identity of an item, for orders that may change
	grows  bool                         // with key: items are only added, so that none moves to where the list was read already
}

// position is the place of a list from which it is read on.
type position[T any] struct {
	id    func(it *T) string
	after func(id string)                    // makes read begin after the item; "" is where the query begins
	there func(ids []string) (string, error) // returns the last of the items that exists, "" if none does
}

// appenderTo is a pointer to a noun.
type appenderTo[T any] interface {
	*T
	rawjson.Appender
}

func appendTo[T any, P appenderTo[T]](dst []byte, item *T) []byte { return P(item).AppendJSON(dst) }

// answerList sends the items of a query, which are known by their ids.
func answerList[T any, P appenderTo[T]](x *exchange, paging *agl.Paging, read func() (agl.Page[T], error), id func(*T) string) error {
	return (&listing[T]{
		paging: paging, read: read, one: appendTo[T, P],
		key: func(h *maphash.Hash, it *T) { _, _ = h.WriteString(id(it)) },
	}).answer(x)
}

// answer reads the list and sends it.
func (l *listing[T]) answer(x *exchange) error {
	asked := *l.paging
	most := asked.Limit
	if most <= 0 {
		most = math.MaxInt
	}
	if asked.Limit >= -1 { // the store rejects other values
		l.paging.Limit = min(most, firstItems)
	}
	page, err := l.read()
	if err != nil {
		return err
	}
	complete := func() bool { return len(page.Items) >= most || asked.Offset+len(page.Items) >= page.Total }
	if n := itemsIn(l.bytes(page.Items), len(page.Items)); l.key != nil && !l.grows && !complete() && n >= min(page.Total-asked.Offset, most) {
		// Everything fits into one read, which is consistent.
		l.paging.Limit = min(n, most)
		if page, err = l.read(); err != nil {
			return err
		}
	}
	if page.Limit = asked.Limit; page.Limit <= 0 {
		page.Limit = -1
	}
	switch {
	case complete():
		return sendPage(x, page, l.one, nil)
	case l.after != nil:
		return sendPage(x, page, l.one, l.behind(page, asked.Offset, most))
	default:
		return sendPage(x, page, l.one, l.passes(page, asked.Offset, most))
	}
}

// bytes returns the size of the items, or any size above laterBytes if they are larger than that.
func (l *listing[T]) bytes(items []T) int {
	var scratch []byte
	size := 0
	for i := range items {
		scratch = l.one(scratch[:0], &items[i])
		if size += len(scratch); size > laterBytes {
			break
		}
	}
	return size
}

// itemsIn returns how many items to read at once, given the size of the last ones.
func itemsIn(bytes, items int) int {
	return min(max(laterBytes/max(bytes/max(items, 1), 1), 1), maxItems)
}

// behind returns a function that reads the items after a page by the last item, so that changes to the list do not
// move them. If that item is deleted meanwhile, it reads on after the last one of the page that is left.
func (l *listing[T]) behind(page agl.Page[T], offset, most int) func(int) ([]T, int, error) {
	total, read, sent := page.Total, len(page.Items), len(page.Items)
	var ids []string // of the last page that was not empty
	last := func(items []T) {
		if len(items) == 0 {
			return
		}
		ids = ids[:0]
		for i := range items {
			ids = append(ids, l.after.id(&items[i]))
		}
		l.after.after(ids[len(ids)-1])
	}
	last(page.Items)
	l.paging.Offset = 0
	return func(bytes int) ([]T, int, error) {
		if sent >= most {
			return nil, total, nil
		}
		l.paging.Limit = min(itemsIn(bytes, read), most-sent)
		later, err := l.read()
		if ended := err == nil && len(later.Items) == 0 && offset+sent < total; ended || agl.ErrorCode(err) == agl.CodeInvalid {
			id, lookup := l.after.there(ids)
			switch {
			case lookup != nil:
				return nil, 0, lookup
			case id == "" && (sent > len(ids) || offset > 0): // which of those before are left is not known
				return nil, 0, agl.Errorf(agl.CodeUnavailable, "what was read of the list last is deleted; read it again")
			case id != ids[len(ids)-1]:
				l.after.after(id)
				later, err = l.read()
			}
		}
		if err != nil {
			return nil, 0, err
		}
		last(later.Items)
		read = len(later.Items)
		total = offset + sent + later.Total
		sent += read
		return later.Items, total, nil
	}
}

// passes returns a function that reads the items after a page by offset. If the order may change, it then reads the
// list again for items that have moved to where it had been already. Those are sent last, and none is sent twice.
func (l *listing[T]) passes(page agl.Page[T], offset, most int) func(int) ([]T, int, error) {
	total, read, sent := page.Total, len(page.Items), len(page.Items)
	at, pass, found := offset+read, 1, true
	seen := seenItems[T]{key: l.key}
	seen.add(page.Items)
	return func(bytes int) ([]T, int, error) {
		n := itemsIn(bytes, read)
		for sent < most {
			if at >= total || at-offset >= most {
				if l.grows || !found || pass == maxPasses {
					break
				}
				at, found, pass = offset, false, pass+1
			}
			l.paging.Offset, l.paging.Limit = at, min(n, most)
			later, err := l.read()
			if err != nil {
				return nil, 0, err
			}
			total, read = later.Total, len(later.Items)
			if at += read; read == 0 { // items have been deleted meanwhile
				at = math.MaxInt
			}
			items := seen.add(later.Items)
			if items = items[:min(len(items), most-sent)]; len(items) > 0 {
				found = true
				sent += len(items)
				read = len(items)
				return items, total, nil
			}
		}
		return nil, total, nil
	}
}

// seenItems remembers which items were sent, with eight bytes for each.
type seenItems[T any] struct {
	key    func(*maphash.Hash, *T)
	hash   maphash.Hash
	hashes map[uint64]struct{}
}

// add returns the items that are new. It reuses the slice.
func (s *seenItems[T]) add(items []T) []T {
	if s.hashes == nil {
		s.hashes = make(map[uint64]struct{}, len(items))
	}
	fresh := items[:0]
	for i := range items {
		s.hash.Reset()
		s.key(&s.hash, &items[i])
		sum := s.hash.Sum64()
		if _, there := s.hashes[sum]; !there {
			s.hashes[sum] = struct{}{}
			fresh = append(fresh, items[i])
		}
	}
	clear(items[len(fresh):])
	return fresh
}
