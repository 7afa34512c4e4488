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
	for first := true; len(page.Items) > 0; {
		bytes := 0
		for i := range page.Items {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			before := len(dst)
			dst = one(dst, &page.Items[i])
			bytes += len(dst) - before
			page.Items[i] = *new(T)
			if len(dst) < pagePiece {
				continue
			}
			if err := flush(); err != nil {
				return err
			}
		}
		page.Items = nil
		if more != nil {
			var err error
			if page.Items, page.Total, err = more(bytes); err != nil {
				return cut(err)
			}
		}
	}
	dst = wire.AppendPageTail(dst, page.Limit, page.Offset, page.Total)
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
