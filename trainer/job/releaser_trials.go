package job

import (
	"context"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/trainer"
)

// trials are the releases in which a run tries its versions.
type trials struct {
	proxy    *trainer.Proxy
	proposal release.Proposal
	tries    func(r *release.Release, version string) bool
}

// book is what a releaser needs of the releases of a store.
type book interface {
	CurrentRelease(ctx context.Context) (release.Current, error)
	List(ctx context.Context) ([]release.Release, error)
	Propose(ctx context.Context, p release.Proposal) (release.Release, error)
}

// remote are the releases of a store elsewhere.
type remote struct{ *client.Client }

func (r remote) List(ctx context.Context) ([]release.Release, error) { return r.ListReleases(ctx) }

func (r remote) Propose(ctx context.Context, p release.Proposal) (release.Release, error) {
	return r.ProposeRelease(ctx, p)
}

// book returns the releases of the run's store.
func (t *trials) book() (book, error) {
	switch releases := t.proxy.Releases().(type) {
	case book:
		return releases, nil
	case *client.Client:
		return remote{releases}, nil
	default:
		return nil, agl.Errorf(agl.CodeUnimplemented, "the store has no releases")
	}
}

// find returns the release that tries a version.
func (t *trials) find(ctx context.Context, b book, version string) (found release.Release, ok bool, err error) {
	list, err := b.List(ctx)
	for i := range list {
		if t.tries(&list[i], version) {
			return list[i], true, err
		}
	}
	return release.Release{}, false, err
}

// propose proposes a version, unless that was done before.
func (t *trials) propose(ctx context.Context, version, model string, candidate release.Version, offline algorithm.Offline) error {
	b, err := t.book()
	if err != nil {
		return err
	}
	if _, known, err := t.find(ctx, b, version); known || err != nil {
		return err
	}
	p := t.proposal
	p.By, p.Model, p.Candidate = "algorithm", model, candidate
	if p.Suite, err = suiteOf(offline); err != nil {
		return err
	}
	_, err = b.Propose(ctx, p)
	return err
}

// standing returns the state of a candidate, if there is one, and the versions that serve sessions.
func (t *trials) standing(ctx context.Context, candidate string) (s algorithm.Standing, current release.Current, err error) {
	b, err := t.book()
	if err != nil {
		return s, current, err
	}
	if candidate != "" {
		found, known, err := t.find(ctx, b, candidate)
		if err != nil {
			return s, current, err
		}
		if known {
			s.State = algorithm.CandidateState(found.State)
		}
	}
	current, err = b.CurrentRelease(ctx)
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
