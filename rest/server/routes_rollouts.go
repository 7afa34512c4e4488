package server

import (
	"cmp"
	"context"
	"hash/maphash"
	"net/http"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/rest/internal/wire"
	"github.com/agl-go/agl/search"
)

// Placeholders of routes.
const (
	rolloutID = "rollout_id"
	attemptID = "attempt_id"
)

// rollouts serves rollouts and their attempts.
type rollouts struct{ store agl.Store }

func (s rollouts) start(x *exchange) error {
	p := agl.StartRolloutParams{IdempotencyKey: x.idempotencyKey()}
	if err := x.decode(wire.StartRollout(&p), bodyRequired); err != nil {
		return err
	}
	if x.caller.Scopes&(access.Runner|access.Train|access.Admin) == 0 {
		for name := range rawjson.Members(p.Metadata) {
			if name := rawjson.UnquoteName(name); strings.HasPrefix(name, agl.MetadataSession) {
				// A proxy would take the rollout for a session of its own, with a key without the limits of the caller's.
				return agl.Errorf(agl.CodeInvalid, "metadata: got %.100q, which proxies set: begin a session at a proxy, or use a key with the scope runner or train", name)
			}
		}
	}
	if err := x.reserve(access.Amounts{Rollouts: 1}); err != nil {
		return err
	}
	started, err := s.store.StartRollout(x.context(), p)
	return x.answer(http.StatusCreated, &started, err)
}

func (s rollouts) query(x *exchange) error {
	var p agl.QueryRolloutsParams
	if err := x.query(wire.QueryRollouts(&p)); err != nil {
		return err
	}
	l := listing[agl.AttemptedRollout]{
		paging: &p.Paging,
		read:   func() (agl.Page[agl.AttemptedRollout], error) { return s.store.QueryRollouts(x.context(), p) },
		one:    appendTo[agl.AttemptedRollout],
	}
	if p.SortBy == "" || p.SortBy == "start_time" {
		given := p.After
		l.after = &position[agl.AttemptedRollout]{
			id:    func(r *agl.AttemptedRollout) string { return r.RolloutID },
			after: func(id string) { p.After = cmp.Or(id, given) },
			there: func(ids []string) (string, error) { return s.lastOf(x.context(), ids) },
		}
	} else {
		l.key = func(h *maphash.Hash, r *agl.AttemptedRollout) { _, _ = h.WriteString(r.RolloutID) }
	}
	return l.answer(x)
}

// lastOf returns the last of the rollouts that exists, "" if none does.
func (s rollouts) lastOf(ctx context.Context, ids []string) (string, error) {
	page, err := s.store.QueryRollouts(ctx, agl.QueryRolloutsParams{RolloutIDIn: ids, Paging: agl.Paging{Limit: -1}})
	there := make(map[string]bool, len(page.Items))
	for i := range page.Items {
		there[page.Items[i].RolloutID] = true
	}
	for _, id := range slices.Backward(ids) {
		if there[id] {
			return id, err
		}
	}
	return "", err
}

// find searches rollouts by what no index holds.
func (s rollouts) find(x *exchange) error {
	var p search.Params
	if err := wire.FindRollouts(&p).Parse(x.request.URL.RawQuery, x.decoder); err != nil {
		return err
	}
	found, err := search.Find(x.context(), s.store, p)
	return x.answer(http.StatusOK, &found, err)
}

func (s rollouts) get(x *exchange) error {
	found, err := s.store.GetRollout(x.context(), agl.GetRolloutParams{RolloutID: x.request.PathValue(rolloutID)})
	return x.answerFound(&found, err)
}

func (s rollouts) update(x *exchange) error {
	p := agl.UpdateRolloutParams{RolloutID: x.request.PathValue(rolloutID)}
	return answerTo(x, http.StatusOK, x.decode(wire.UpdateRollout(&p), bodyRequired), &p, s.store.UpdateRollout)
}

func (s rollouts) cancel(x *exchange) error {
	cancelled, err := s.store.CancelRollout(x.context(), agl.CancelRolloutParams{RolloutID: x.request.PathValue(rolloutID)})
	return x.answer(http.StatusOK, &cancelled, err)
}

func (s rollouts) delete(x *exchange) error {
	if err := s.store.DeleteRollout(x.context(), agl.DeleteRolloutParams{RolloutID: x.request.PathValue(rolloutID)}); err != nil {
		return err
	}
	x.WriteHeader(http.StatusNoContent)
	return nil
}

func (s rollouts) startAttempt(x *exchange) error {
	p := agl.StartAttemptParams{RolloutID: x.request.PathValue(rolloutID), IdempotencyKey: x.idempotencyKey()}
	return answerTo(x, http.StatusCreated, x.decode(wire.StartAttempt(&p), bodyOptional), &p, s.store.StartAttempt)
}

func (s rollouts) queryAttempts(x *exchange) error {
	p := agl.QueryAttemptsParams{RolloutID: x.request.PathValue(rolloutID)}
	if err := x.query(wire.QueryAttempts(&p)); err != nil {
		return err
	}
	return answerList(x, &p.Paging, func() (agl.Page[agl.Attempt], error) { return s.store.QueryAttempts(x.context(), p) },
		func(it *agl.Attempt) string { return it.AttemptID })
}

func (s rollouts) latestAttempt(x *exchange) error {
	found, err := s.store.GetLatestAttempt(x.context(), agl.GetLatestAttemptParams{RolloutID: x.request.PathValue(rolloutID)})
	return x.answerFound(&found, err)
}

func (s rollouts) updateAttempt(x *exchange) error {
	p := agl.UpdateAttemptParams{RolloutID: x.request.PathValue(rolloutID), AttemptID: x.request.PathValue(attemptID)}
	if p.AttemptID == "" { // the path of the latest attempt has no placeholder
		p.AttemptID = agl.LatestAttempt
	}
	if err := x.decode(wire.UpdateAttempt(&p), bodyRequired); err != nil {
		return err
	}
	updated, err := s.store.UpdateAttempt(x.context(), p)
	if outcome, over := updated.Outcome(); over && outcome.Kind == agl.OutcomeCancelled {
		x.tellCancelled()
	}
	return x.answer(http.StatusOK, &updated, err)
}
