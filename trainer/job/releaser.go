package job

import (
	"context"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/trainer/engine"
)

// releaser tries the weights of a run in releases of its store. It serves each version as a model of its own in the run's proxy.
type releaser struct {
	trials
	publisher *engine.Publisher
	store     agl.Store
	model     string // that programs ask for
}

var _ algorithm.Releaser = (*releaser)(nil)

// name returns the model name of a version that is served beside the first.
func (r *releaser) name(version string) string { return r.model + "@" + version }

func (r *releaser) Model(version string) string {
	if r.proxy.Serves(r.name(version)) {
		return r.name(version)
	}
	return r.model
}

func (r *releaser) Serve(ctx context.Context, p algorithm.Publication) error {
	return r.publisher.PublishAs(ctx, r.name(p.Version), p)
}

func (r *releaser) Propose(ctx context.Context, version string, offline algorithm.Offline) error {
	return r.propose(ctx, version, r.model, release.Version{Model: r.name(version)}, offline)
}

func (r *releaser) Standing(ctx context.Context, candidate string) (algorithm.Standing, error) {
	s, current, err := r.standing(ctx, candidate)
	s.Stable, _ = strings.CutPrefix(current.Models(release.Stable)[r.model], r.model+"@")
	return s, err
}

func (r *releaser) Withdraw(ctx context.Context, version string) (gone bool, err error) {
	open, err := r.store.QueryRollouts(ctx, agl.QueryRolloutsParams{
		StatusIn: []agl.RolloutStatus{agl.RolloutPreparing, agl.RolloutRunning}, Paging: agl.Paging{Limit: -1},
	})
	if err != nil {
		return false, err
	}
	name := `"` + r.name(version) + `"` // among the models that answer a session
	for i := range open.Items {
		if strings.Contains(string(open.Items[i].Metadata), name) {
			return false, nil
		}
	}
	return true, r.publisher.Remove(r.name(version), version)
}
