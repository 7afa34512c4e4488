package server

import (
	"errors"
	"net/http"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/rest/internal/wire"
)

// The placeholders of routes.
const (
	releaseID  = "release_id"
	releaseAct = "act"
)

// releases serves the releases of a store. Its releases are nil for a store that keeps no documents.
type releases struct {
	releases *release.Releases
	store    agl.Store
}

func newReleases(store agl.Store) releases {
	documents, ok := store.(agl.DocumentStore)
	if !ok {
		return releases{}
	}
	return releases{release.New(documents), store}
}

// missing is the error of a server without releases, and nil otherwise.
func (s releases) missing() error {
	return unimplementedUnless(s.releases != nil, "this server's store keeps no releases")
}

func (s releases) current(x *exchange) error {
	current, err := s.releases.CurrentRelease(x.context())
	return x.answerJSON(http.StatusOK, &current, err)
}

func (s releases) list(x *exchange) error {
	found, err := s.releases.ListReleases(x.context())
	items := make([]wire.ReleaseAnswer, len(found))
	for i := range found {
		items[i] = wire.ReleaseOf(found[i])
	}
	return x.answerJSON(http.StatusOK, map[string][]wire.ReleaseAnswer{"items": items}, err)
}

func (s releases) get(x *exchange) error {
	found, err := s.releases.Get(x.context(), x.request.PathValue(releaseID))
	return x.answerJSON(http.StatusOK, wire.ReleaseOf(found), err)
}

func (s releases) propose(x *exchange, body *wire.NewRelease) error {
	if id := body.Candidate.ResourcesID; id != "" { // otherwise every session with the candidate would fail
		if _, err := s.store.GetResources(x.context(), agl.GetResourcesParams{ResourcesID: id}); errors.Is(err, agl.ErrNotFound) {
			return agl.Errorf(agl.CodeInvalid, "candidate.resources_id: got %.100q, must be the id of resources of this store", id)
		} else if err != nil {
			return err
		}
	}
	made, err := s.releases.ProposeRelease(x.context(), release.Proposal{Candidate: body.Candidate, Model: body.Model, Share: body.Share, Gates: body.Gates, Suite: body.Suite, By: x.caller.By()})
	return x.answerJSON(http.StatusCreated, wire.ReleaseOf(made), err)
}

// act applies the act in the path to a release.
func (s releases) act(x *exchange) error {
	var body wire.ActOnRelease
	if err := x.decode(&body, bodyOptional); err != nil {
		return err
	}
	act := release.Act(x.request.PathValue(releaseAct))
	after, err := s.releases.Do(x.context(), x.request.PathValue(releaseID), act, x.caller.By(), body.Reason)
	return x.answerJSON(http.StatusOK, wire.ReleaseOf(after), err)
}
