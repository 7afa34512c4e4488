package server

import (
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

const (
	// pagePiece is the size, in bytes, from which on an answer to a query is sent in pieces: it
	// takes no more memory than its items, and these are free when they are sent.
	pagePiece = 512 << 10
	// pieceTimeout bounds the time in which a client must take a piece. What a client leaves
	// lying keeps its answer in memory.
	pieceTimeout = 30 * time.Second
	// maxLists bounds the answers in pieces that one caller gets at once: each has a few megabytes
	// while its client is slow.
	maxLists = 128
)

// sendPage sends the answer to a query; one appends an item. more returns further items after
// those of the page, which took so many bytes, until there are none, and how many there are in
// all; nil is none.
func sendPage[T any](x *exchange, page agl.Page[T], one func(dst []byte, item *T) []byte, more func(bytes int) (items []T, total int, err error)) error {
	dst, began := x.out, false
	dst = append(dst, wire.PageHead...)
	conn := http.NewResponseController(x.ResponseWriter)
	// Once the head of the answer is sent, only a broken connection says that the rest is missing.
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
	// The next request of the connection has its own.
	_ = conn.SetWriteDeadline(time.Time{})
	return nil
}
