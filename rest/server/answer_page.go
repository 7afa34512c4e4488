package server

import (
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

const (
	// pagePiece is the size, in bytes, above which an answer to a query is sent in pieces, so that it needs no more
	// memory than its items, which are freed as they are sent.
	pagePiece = 512 << 10
	// pieceTimeout bounds the time in which a client must receive a piece. A client that does not read keeps its
	// answer in memory.
	pieceTimeout = 30 * time.Second
	// maxLists bounds the answers in pieces that one caller may receive at once: each takes a few megabytes while its
	// client is slow.
	maxLists = 128
)

// sendPage sends the answer to a query. one appends an item. more, if not nil, gets the size of the items just sent,
// and returns further items until there are none, and the total.
func sendPage[T any](x *exchange, page agl.Page[T], one func(dst []byte, item *T) []byte, more func(bytes int) (items []T, total int, err error)) error {
	first := true
	next := func(bytes int) (items []T, err error) {
		switch {
		case first:
			first, items, page.Items = false, page.Items, nil
		case more != nil:
			items, page.Total, err = more(bytes)
		}
		return items, err
	}
	return sendItems(x, next, one, func(dst []byte) []byte { return wire.AppendPageTail(dst, page.Limit, page.Offset, page.Total) })
}

// sendItems sends a document with the member items. next gets the size of the items just sent, and returns further items
// until there are none. tail appends what comes after the last item.
func sendItems[T any](
	x *exchange, next func(bytes int) ([]T, error), one func(dst []byte, item *T) []byte, tail func(dst []byte) []byte,
) error {
	dst, began := x.out, false
	dst = append(dst, wire.PageHead...)
	conn := http.NewResponseController(x.ResponseWriter)
	// Once the head of the answer is sent, only breaking the connection tells the client that the rest is missing.
	cut := func(err error) error {
		if began {
			x.cutOff(err)
			panic(http.ErrAbortHandler)
		}
		return err
	}
	leave := func() {}
	defer func() { leave() }()
	flush := func() error {
		if !began {
			var err error
			if leave, err = x.lists.Enter(x.caller.Who(x.request.RemoteAddr)); err != nil {
				leave = func() {}
				return tooManyOpen(x, err)
			}
			x.Header()["Content-Type"] = x.jsonType
			x.WriteHeader(http.StatusOK)
			began = true
		}
		_ = conn.SetWriteDeadline(time.Now().Add(pieceTimeout)) // tests have writers without deadlines
		if _, err := x.Write(dst); err != nil {
			return cut(&writeError{err})
		}
		x.out, dst = dst[:0], dst[:0]
		return nil
	}
	bytes := 0
	for first := true; ; {
		items, err := next(bytes)
		if err != nil {
			return cut(err)
		}
		if len(items) == 0 {
			break
		}
		bytes = 0
		for i := range items {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			before := len(dst)
			dst = one(dst, &items[i])
			bytes += len(dst) - before
			items[i] = *new(T)
			if len(dst) < pagePiece {
				continue
			}
			if err := flush(); err != nil {
				return err
			}
		}
	}
	dst = tail(dst)
	if !began {
		return x.send(http.StatusOK, dst)
	}
	if err := flush(); err != nil {
		return err
	}
	// The deadline must not apply to the connection's next request.
	_ = conn.SetWriteDeadline(time.Time{})
	return nil
}
