package job

import (
	"context"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/release"
)

// promptReleaser tries the prompts of a run in releases of its store.
type promptReleaser struct{ trials }

var _ apo.Releaser = (*promptReleaser)(nil)

func (r *promptReleaser) Propose(ctx context.Context, version string, offline algorithm.Offline) error {
	return r.propose(ctx, version, "", release.Version{ResourcesID: version}, offline)
}

func (r *promptReleaser) Standing(ctx context.Context, candidate string) (algorithm.Standing, error) {
	s, current, err := r.standing(ctx, candidate)
	s.Stable = current.Stable.ResourcesID
	return s, err
}
