package job

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/trainer"
)

// trials are the releases in which a run tries its versions.
type trials struct {
	proxy    *trainer.Proxy
	proposal release.Proposal
	tries    func(r *release.Release, version string) bool
}

// releases is what a releaser needs of those of a store.
type releases interface {
	CurrentRelease(ctx context.Context) (release.Current, error)
	ListReleases(ctx context.Context) ([]release.Release, error)
	ProposeRelease(ctx context.Context, p release.Proposal) (release.Release, error)
}

// ofStore returns the releases of the run's store.
func (t *trials) ofStore() (releases, error) {
	known, ok := t.proxy.Releases().(releases)
	if !ok {
		return nil, agl.Errorf(agl.CodeUnimplemented, "the store has no releases")
	}
	return known, nil
}

// find returns the release that tries a version.
func (t *trials) find(ctx context.Context, known releases, version string) (found release.Release, ok bool, err error) {
	list, err := known.ListReleases(ctx)
	for i := range list {
		if t.tries(&list[i], version) {
			return list[i], true, err
		}
	}
	return release.Release{}, false, err
}

// propose proposes a version, unless that was done before.
func (t *trials) propose(ctx context.Context, version, model string, candidate release.Version, offline algorithm.Offline) error {
	known, err := t.ofStore()
	if err != nil {
		return err
	}
	if _, proposed, err := t.find(ctx, known, version); proposed || err != nil {
		return err
	}
	p := t.proposal
	p.By, p.Model, p.Candidate = "algorithm", model, candidate
	if p.Suite, err = suiteOf(offline); err != nil {
		return err
	}
	_, err = known.ProposeRelease(ctx, p)
	return err
}

// standing returns the state of a candidate, if there is one, and the versions that serve sessions.
func (t *trials) standing(ctx context.Context, candidate string) (s algorithm.Standing, current release.Current, err error) {
	known, err := t.ofStore()
	if err != nil {
		return s, current, err
	}
	if candidate != "" {
		found, proposed, err := t.find(ctx, known, candidate)
		if err != nil {
			return s, current, err
		}
		if proposed {
			s.State = algorithm.CandidateState(found.State)
		}
	}
	current, err = known.CurrentRelease(ctx)
	return s, current, err
}

// suiteOf compares the offline rewards of two versions; nil if there are none.
func suiteOf(offline algorithm.Offline) (*release.Suite, error) {
	if len(offline.Stable) < 2 {
		return nil, nil //nolint:nilnil // there is no suite
	}
	suite, err := release.Compare(offline.Stable, offline.Candidate)
	return &suite, err
}
