package job

import (
	"context"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/trainer"
)

// promptReleaser tries the prompts of a run in releases of its store.
type promptReleaser struct {
	proxy    *trainer.Proxy
	proposal release.Proposal
}

var _ apo.Releaser = (*promptReleaser)(nil)

// find returns the release of a version of the resources.
func (*promptReleaser) find(ctx context.Context, b book, version string) (found release.Release, ok bool, err error) {
	list, err := b.List(ctx)
	for i := range list {
		if list[i].Candidate.ResourcesID == version {
			return list[i], true, err
		}
	}
	return release.Release{}, false, err
}

// Propose implements [apo.Releaser].
func (r *promptReleaser) Propose(ctx context.Context, version string, offline algorithm.Offline) error {
	b, err := bookOf(r.proxy)
	if err != nil {
		return err
	}
	if _, known, err := r.find(ctx, b, version); known || err != nil {
		return err
	}
	p := r.proposal
	p.By, p.Candidate = "algorithm", release.Version{ResourcesID: version}
	if p.Suite, err = suiteOf(offline); err != nil {
		return err
	}
	_, err = b.Propose(ctx, p)
	return err
}

// Standing implements [apo.Releaser].
func (r *promptReleaser) Standing(ctx context.Context, candidate string) (s algorithm.Standing, err error) {
	b, err := bookOf(r.proxy)
	if err != nil {
		return s, err
	}
	if candidate != "" {
		found, known, err := r.find(ctx, b, candidate)
		if err != nil {
			return s, err
		}
		if known {
			s.State = algorithm.CandidateState(found.State)
		}
	}
	current, err := b.CurrentRelease(ctx)
	s.Stable = current.Stable.ResourcesID
	return s, err
}

// suiteOf compares what two versions have shown offline; nil if that is nothing.
func suiteOf(offline algorithm.Offline) (*release.Suite, error) {
	if len(offline.Stable) < 2 {
		return nil, nil //nolint:nilnil // there is no suite
	}
	suite, err := release.Compare(offline.Stable, offline.Candidate)
	return &suite, err
}
