package server

import (
	"context"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// collect hands out rollouts that are ready to be learned from.
type collect struct {
	collector agl.Collector // nil if the server has none
}

func (c collect) batch(x *exchange) error {
	if c.collector == nil {
		return agl.Errorf(agl.CodeUnimplemented, "this server has no collector")
	}
	var q wire.CollectQuery
	if err := q.Query().Parse(x.request.URL.RawQuery, x.decoder); err != nil {
		return err
	}
	p, err := q.Collect()
	if err != nil {
		return err
	}
	var got agl.Collection
	run := func(ctx context.Context) (err error) {
		got, err = c.collector.Collect(ctx, p)
		return err
	}
	released, err := x.block(p.MaxWait > 0, run)
	if released { // answer with what there is
		p.MaxWait = 0
		err = run(x.context())
	}
	if err == nil {
		x.Header()[wire.Wait] = []string{waitState(len(got.Rollouts) < max(p.Min, 1))}
	}
	return x.answer(http.StatusOK, &got, err)
}
