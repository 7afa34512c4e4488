package server

import (
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/rest/internal/wire"
)

// rewards adds rewards to rollouts, even to those that have finished.
type rewards struct{ store agl.Store }

func (s rewards) add(x *exchange, body *wire.NewReward) error {
	p, err := body.Params(x.request.PathValue(rolloutID), x.idempotencyKey())
	if err != nil {
		return err
	}
	added, err := agl.AddReward(x.context(), s.store, p)
	return x.answer(http.StatusOK, &added, err)
}
