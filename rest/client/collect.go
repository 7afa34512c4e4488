package client

import (
	"context"
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

var _ agl.Collector = (*Client)(nil)

// Collect implements agl.Collector through the server's collector. A long wait takes several requests, each of which
// starts from p.Since.
func (c *Client) Collect(ctx context.Context, p agl.CollectParams) (agl.Collection, error) {
	deadline := time.Now().Add(p.MaxWait)
	for {
		p.MaxWait = min(max(time.Until(deadline), 0), c.config.LongPoll)
		op := operation{name: "Collect", method: http.MethodGet, path: withQuery(wire.Collect, wire.NewCollectQuery(p).Query()), waits: p.MaxWait}
		var got agl.Collection
		complete := false
		asked := time.Now()
		err := c.do(ctx, op, func(header http.Header, body []byte) error {
			complete = header.Get(wire.Wait) == wire.WaitComplete
			return decodeTo(&got)(header, body)
		})
		if err != nil || complete || !time.Now().Before(deadline) {
			return got, err
		}
		if c.pace(ctx, asked, p.MaxWait, deadline) != nil {
			return agl.Collection{}, ended(ctx, "Collect")
		}
	}
}
