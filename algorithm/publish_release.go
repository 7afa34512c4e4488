package algorithm

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/tinker"
)

// Releaser gives the weights of a run to a share of the users first, and reports what became of
// them.
type Releaser interface {
	// Serve serves a snapshot as a model of its own. Only the sessions that a release assigns to it get it.
	Serve(ctx context.Context, p Publication) error
	// Withdraw stops serving a version. If a session still uses the version, it does nothing and returns false.
	Withdraw(ctx context.Context, version string) (gone bool, err error)
	// Model returns the model name under which a version can be requested.
	Model(version string) string
	// Propose begins a release of a version that is served. If a release of the version has begun already, it does nothing.
	// While another release has a canary, it returns agl.ErrIllegalState.
	Propose(ctx context.Context, version string, offline Offline) error
	// Standing returns the stable version and the state of a candidate's release. An empty candidate asks for the
	// stable version only.
	Standing(ctx context.Context, candidate string) (Standing, error)
}

// Offline holds the rewards of the stable version and of a candidate on the same tasks of the validation dataset, in the same order.
// Both are empty without a validation dataset.
type Offline struct{ Stable, Candidate []float64 }

// Standing is what a [Releaser] knows.
type Standing struct {
	// Stable is the version that users get outside of the canary; empty means the one that the run began with, or one that
	// somebody else has released.
	Stable string
	// State is that of the candidate's release; empty if there is none.
	State CandidateState
}

// CandidateState is the state of a candidate's release.
type CandidateState string

// The states.
const (
	CandidateTried    CandidateState = "canary"
	CandidatePromoted CandidateState = "promoted"
	CandidateRejected CandidateState = "rolled_back"
)

// ReleaseParams make a session release its weights instead of giving them to everybody.
type ReleaseParams struct {
	// Releaser is required.
	Releaser Releaser
	// Every is how many times the weights change between two candidates, at least 1.
	Every int
	// Ahead is by how many versions the weights in training may differ from those that are stable while a candidate is tried.
	Ahead int
}

// release is what a session knows of the releases of its weights. The JSON form is in checkpoints.
type release struct {
	// Versions are those that can be served. The first is the one that the run began with, which users get without any
	// release.
	Versions []releasedVersion `json:"versions"`
	// Stable is the version that the weights in training are derived from.
	Stable string `json:"stable"`
	// Candidate is the version that is tried, or will be; empty if there is none.
	Candidate string `json:"candidate,omitzero"`
	// Changes counts how often the weights changed since Stable, or the last candidate.
	Changes int `json:"changes"`

	offered bool     // Candidate has no release yet
	old     []string // weights of versions that were withdrawn
}

// releasedVersion has weights that a later process can serve again.
type releasedVersion struct {
	Version    string `json:"version"`
	Generation int    `json:"generation"`
	Weights    string `json:"weights"` // a checkpoint of the engine
	Rejected   bool   `json:"rejected,omitzero"`
	// Suite are the rewards of the tasks of the validation dataset; null for tasks whose rollout was masked.
	Suite []*float64 `json:"suite,omitzero"`

	snapshot string // of this process
}

func (r *release) find(version string) *releasedVersion {
	if i := slices.IndexFunc(r.Versions, func(v releasedVersion) bool { return v.Version == version }); i >= 0 {
		return &r.Versions[i]
	}
	return nil
}

// beginReleases serves the versions of the checkpoint or, in a new run, the first version.
func (s *Session) beginReleases(ctx context.Context) error {
	if len(s.release.Versions) == 0 {
		version, err := s.addVersion(ctx)
		if err != nil {
			return err
		}
		s.ResourcesID, s.release.Stable = version, version
		v, err := s.saveVersion(ctx, version)
		if err != nil {
			return err
		}
		return s.publishSnapshot(ctx, s.p.Training.Publisher, s.Calls, Publication{Snapshot: v.snapshot, Version: v.Version})
	}
	// The newest first: users get the first version as soon as it is served, and then the others
	// must be there.
	for i, v := range slices.Backward(s.release.Versions) {
		if err := s.Model.LoadWeights(ctx, tinker.LoadWeightsParams{Path: v.Weights}); err != nil {
			return fmt.Errorf("load version %s: %w", v.Version, err)
		}
		snapshot, err := s.Model.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: fmt.Sprintf("again-%d", i)})
		if err != nil {
			return fmt.Errorf("save weights for sampling: %w", err)
		}
		s.release.Versions[i].snapshot = snapshot
		if !v.Rejected {
			s.Calls.Published(v.Version, v.Generation)
		}
		p := Publication{Snapshot: snapshot, Version: v.Version}
		if i > 0 {
			err = s.p.Release.Releaser.Serve(ctx, p)
		} else {
			err = s.p.Training.Publisher.Publish(ctx, p)
		}
		if err != nil {
			return fmt.Errorf("serve version %s: %w", v.Version, err)
		}
	}
	if err := s.Model.LoadWeights(ctx, tinker.LoadWeightsParams{Path: s.Model.Weights, WithOptimizer: true}); err != nil {
		return fmt.Errorf("load the weights in training: %w", err)
	}
	return nil // Follow proposes a candidate without a release before the next step
}

// saveVersion saves the weights in training as a version.
func (s *Session) saveVersion(ctx context.Context, version string) (releasedVersion, error) {
	v := releasedVersion{Version: version, Generation: s.generation}
	var err error
	if v.Weights, err = s.Model.SaveWeights(ctx, tinker.SaveWeightsParams{Name: fmt.Sprintf("version-%08d", s.generation)}); err != nil {
		return v, fmt.Errorf("save the weights of version %s: %w", version, err)
	}
	if v.snapshot, err = s.Model.SaveWeightsForSampler(ctx, tinker.SaveWeightsParams{Name: fmt.Sprintf("version-%08d", s.generation)}); err != nil {
		return v, fmt.Errorf("save weights for sampling: %w", err)
	}
	s.release.Versions = append(s.release.Versions, v)
	return v, nil
}

// offer makes the weights in training a candidate if enough was learned and none is tried. [Session.Commit] proposes it.
func (s *Session) offer(ctx context.Context) error {
	s.release.Changes++
	if s.release.Candidate != "" || s.release.Changes < s.p.Release.Every {
		return nil
	}
	v, err := s.saveVersion(ctx, fmt.Sprintf("%s-w%d", s.Run, s.generation))
	if err != nil {
		return err
	}
	s.Calls.Published(v.Version, v.Generation)
	if err := s.p.Release.Releaser.Serve(ctx, Publication{Snapshot: v.snapshot, Version: v.Version}); err != nil {
		return fmt.Errorf("serve version %s: %w", v.Version, err)
	}
	s.release.Candidate, s.release.Changes, s.release.offered = v.Version, 0, true
	return nil
}

// propose begins the release of the candidate, whose weights are in a checkpoint. If that is not possible yet,
// [Session.Follow] tries again.
func (s *Session) propose(ctx context.Context) error {
	if s.release.Candidate == "" {
		return nil
	}
	offline, err := s.offline(ctx)
	if err != nil {
		return err
	}
	err = s.p.Release.Releaser.Propose(ctx, s.release.Candidate, offline)
	switch {
	case err == nil:
		s.release.offered = false
	case agl.ErrorCode(err) == agl.CodeIllegalState || agl.ErrorCode(err) == agl.CodeUnavailable:
		s.p.Logger.InfoContext(ctx, "the candidate cannot be proposed yet", "version", s.release.Candidate, "error", err)
	default:
		return fmt.Errorf("propose version %s: %w", s.release.Candidate, err)
	}
	return ctx.Err()
}

// offline runs the validation dataset with the candidate, and with the stable version unless that is done.
func (s *Session) offline(ctx context.Context) (o Offline, err error) {
	if s.p.Input.Val == nil {
		return o, nil
	}
	stable, candidate := s.release.find(s.release.Stable), s.release.find(s.release.Candidate)
	for _, v := range []*releasedVersion{stable, candidate} {
		if v.Suite == nil {
			if v.Suite, err = s.suite(ctx, v.Version); err != nil {
				return o, fmt.Errorf("offline suite of version %s: %w", v.Version, err)
			}
		}
	}
	for i := range min(len(stable.Suite), len(candidate.Suite)) {
		if a, b := stable.Suite[i], candidate.Suite[i]; a != nil && b != nil {
			o.Stable, o.Candidate = append(o.Stable, *a), append(o.Candidate, *b)
		}
	}
	return o, nil
}

// suite runs the validation dataset with a version.
func (s *Session) suite(ctx context.Context, version string) ([]*float64, error) {
	resources := slices.Clone(s.p.Input.InitialResources)
	for i := range resources {
		if llm, ok := resources[i].Resource.(agl.ProxyLLM); ok && llm.Model == s.p.Training.ModelName {
			llm.Model = s.p.Release.Releaser.Model(version)
			resources[i].Resource = llm
		}
	}
	id, err := s.addValidationResources(ctx, resources)
	if err != nil {
		return nil, err
	}
	report, err := s.evaluate(ctx, id, Tag{Step: s.Step, Stage: "suite"})
	if err != nil {
		return nil, err
	}
	rewards := make([]*float64, len(report.Results))
	for i := range report.Results {
		if r := &report.Results[i]; r.Mask == "" {
			rewards[i] = &r.Reward
		}
	}
	return rewards, nil
}

// releasePace is the interval at which the state of a candidate is polled.
const releasePace = time.Second

// Follow acts on the decisions about candidates: after a promotion learning goes on, after a rollback it goes back to the stable
// weights. While a candidate is tried and the weights in training are too far ahead, it waits. Without SessionParams.Release it
// does nothing.
func (s *Session) Follow(ctx context.Context) error {
	for s.p.Release != nil {
		wait, err := s.follow(ctx)
		if err != nil {
			return fmt.Errorf("follow the release: %w", err)
		}
		if !wait {
			return nil
		}
		if err := backoff.Sleep(ctx, releasePace); err != nil {
			return err
		}
	}
	return nil
}

func (s *Session) follow(ctx context.Context) (wait bool, err error) {
	r := &s.release
	standing, err := s.p.Release.Releaser.Standing(ctx, r.Candidate)
	if err != nil {
		if ctx.Err() == nil && agl.ErrorCode(err) == agl.CodeUnavailable {
			s.p.Logger.WarnContext(ctx, "the store does not say what became of the candidate; it will be asked again", "error", err)
			return true, nil
		}
		return false, err
	}
	ahead := s.generation - r.find(r.Stable).Generation
	switch {
	case r.Candidate == "":
	case standing.State == CandidatePromoted:
		r.Stable, r.Candidate = r.Candidate, ""
	case standing.State == CandidateRejected:
		s.reject(r.Candidate)
		r.Candidate = ""
		if err := s.goBack(ctx, r.Stable); err != nil {
			return false, err
		}
	case standing.State == "":
		return ahead > s.p.Release.Ahead, s.propose(ctx)
	default:
		return ahead > s.p.Release.Ahead, nil
	}
	stable := standing.Stable
	if r.find(stable) == nil {
		stable = r.Versions[0].Version
	}
	if stable != r.Stable { // a person has rolled back what was promoted
		s.reject(r.Stable)
		if err := s.goBack(ctx, stable); err != nil {
			return false, err
		}
	}
	return false, s.withdraw(ctx)
}

// reject ends learning from the sessions of a version.
func (s *Session) reject(version string) {
	s.Calls.Forget(version)
	s.release.find(version).Rejected = true
}

// goBack loads a version, from which learning goes on.
func (s *Session) goBack(ctx context.Context, version string) error {
	v := s.release.find(version)
	if err := s.Model.LoadWeights(ctx, tinker.LoadWeightsParams{Path: v.Weights, WithOptimizer: true}); err != nil {
		return fmt.Errorf("load version %s: %w", version, err)
	}
	v.Generation, v.Rejected = s.generation, false // no distance to the weights in training
	s.Calls.Published(version, s.generation)
	s.release.Stable, s.release.Changes = version, 0
	s.p.Logger.InfoContext(ctx, "learning goes back to the weights that are stable", "version", version)
	return nil
}

// keptVersions is how many versions beside the first are kept for a rollback by hand.
const keptVersions = 4

// withdraw withdraws the oldest versions beyond keptVersions that no session uses.
func (s *Session) withdraw(ctx context.Context) error {
	for i := 1; i < len(s.release.Versions) && len(s.release.Versions) > 1+keptVersions; {
		v := s.release.Versions[i]
		gone := false
		if v.Version != s.release.Stable && v.Version != s.release.Candidate {
			var err error
			if gone, err = s.p.Release.Releaser.Withdraw(ctx, v.Version); err != nil {
				return err
			}
		}
		if !gone {
			i++
			continue
		}
		s.release.Versions = slices.Delete(s.release.Versions, i, i+1)
		s.release.old = append(s.release.old, v.Weights, v.snapshot)
	}
	return nil
}

// committed does what must wait for a checkpoint: it deletes the weights of withdrawn versions, and proposes the candidate.
func (s *Session) committed(ctx context.Context) error {
	for _, path := range s.release.old {
		if err := DeleteWeights(ctx, s.p.Training.Service, path); err != nil {
			s.p.Logger.WarnContext(ctx, "delete the weights of an old version", "error", err)
		}
	}
	s.release.old = nil
	if s.release.offered {
		return s.propose(ctx)
	}
	return nil
}

// Candidate returns the version that is tried, or will be; empty if there is none.
func (s *Session) Candidate() string { return s.release.Candidate }

// Generation returns the generation of the weights in training: how often they have changed since
// the run began.
func (s *Session) Generation() int { return s.generation }
