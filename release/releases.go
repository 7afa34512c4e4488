package release

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
)

// The documents: one for each release, and one with what is current.
const (
	kind     = "release"
	kindHead = "release-current"
	idHead   = "current"
)

// maxTries bounds the attempts to write a document that others change, too.
const maxTries = 20

// Releases manages the releases of a store. Its methods are safe for concurrent use, by any number of processes on
// one database. Methods that the client of a store (package rest/client) has, too, have the same signatures there.
type Releases struct {
	documents agl.DocumentStore
}

// New returns the releases that a store keeps as documents.
func New(documents agl.DocumentStore) *Releases { return &Releases{documents} }

// CurrentRelease returns what serves sessions that begin now.
func (r *Releases) CurrentRelease(ctx context.Context) (Current, error) {
	current, _, err := r.head(ctx)
	return current, err
}

func (r *Releases) head(ctx context.Context) (current Current, version int64, err error) {
	current, version, err = agl.ReadDocument[Current](ctx, r.documents, kindHead, idHead)
	if errors.Is(err, agl.ErrNotFound) {
		err = nil
	}
	return current, version, err
}

// Get returns a release; ErrNotFound.
func (r *Releases) Get(ctx context.Context, id string) (Release, error) {
	release, _, err := r.get(ctx, id)
	return release, err
}

func (r *Releases) get(ctx context.Context, id string) (release Release, version int64, err error) {
	release, version, err = agl.ReadDocument[Release](ctx, r.documents, kind, id)
	if errors.Is(err, agl.ErrNotFound) {
		err = agl.Errorf(agl.CodeNotFound, "release %.100q not found", id)
	}
	return release, version, err
}

// ListReleases returns all releases, the newest first.
func (r *Releases) ListReleases(ctx context.Context) ([]Release, error) {
	list, err := agl.ListDocuments[Release](ctx, r.documents, kind)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b Release) int {
		return cmp.Or(cmp.Compare(b.CreateTime, a.CreateTime), strings.Compare(a.ID, b.ID))
	})
	return list, nil
}

// ProposeRelease starts a release. If another one has a canary, it is ErrIllegalState. A candidate that is worse on its
// offline suite is rolled back at once, so no session gets it.
func (r *Releases) ProposeRelease(ctx context.Context, p Proposal) (Release, error) {
	p = p.withDefaults()
	if err := p.check(); err != nil {
		return Release{}, err
	}
	now := agl.TimestampOf(time.Now())
	release := Release{
		ID: "re-" + strings.ToLower(rand.Text()[:12]), State: StateCanary, Model: p.Model, Candidate: p.Candidate, Share: p.Share, Gates: p.Gates, Suite: p.Suite,
		CreateTime: now, CreatedBy: p.By, Decisions: []Decision{{Action: "propose", By: p.By, Reason: "proposed", Time: now}},
	}
	worse := false
	if p.Suite != nil {
		if v := p.Suite.Decide(); v.Action == Rollback {
			worse, release.State = true, StateRolledBack
			release.Decisions = append(release.Decisions, Decision{Action: string(ActRollback), By: ByGates, Reason: v.Reason, Time: now})
		}
	}
	for range maxTries {
		current, version, err := r.head(ctx)
		if err != nil {
			return Release{}, err
		}
		if current.Release != "" && !worse {
			return Release{}, agl.Errorf(agl.CodeIllegalState, "release %s has a canary; promote it or roll it back first", current.Release)
		}
		release.Stable = Version{ResourcesID: current.Stable.ResourcesID, Model: current.Models(Stable)[p.Model]}
		if release.changesNothing() {
			return Release{}, agl.Errorf(agl.CodeInvalid, "candidate: got %s, which all sessions have already, must be another version", strings.Trim(p.Candidate.ResourcesID+" "+p.Candidate.Model, " "))
		}
		head := current
		if !worse {
			head = current.about(p.Model)
			head.Release, head.Candidate, head.Share = release.ID, p.Candidate, p.Share
		}
		if err := r.write(ctx, &release, 0, &head, version); !errors.Is(err, agl.ErrConflict) {
			return release, err
		}
	}
	return Release{}, errBusy()
}

// changesNothing reports whether the candidate is what is stable.
func (r *Release) changesNothing() bool {
	return (r.Candidate.Model == "" || r.Candidate.Model == cmp.Or(r.Stable.Model, r.Model)) &&
		(r.Candidate.ResourcesID == "" || r.Candidate.ResourcesID == r.Stable.ResourcesID)
}

func errBusy() error {
	return agl.Errorf(agl.CodeUnavailable, "the releases change too often; try again")
}

// Act is something that a person, or the gates, can do with a release.
type Act string

// The acts.
const (
	ActPromote  Act = "promote"
	ActRollback Act = "rollback"
	ActFreeze   Act = "freeze"
	ActResume   Act = "resume"
)

// acts returns every act.
func acts() []Act { return []Act{ActPromote, ActRollback, ActFreeze, ActResume} }

// Do promotes, rolls back, freezes or resumes a release. An act that is done already changes nothing. Rolling back a
// promoted release restores the resources or the model that it replaced, unless another release has replaced them again. An act that the state
// does not allow is ErrIllegalState.
func (r *Releases) Do(ctx context.Context, id string, act Act, by, reason string) (Release, error) {
	if !slices.Contains(acts(), act) {
		return Release{}, agl.Errorf(agl.CodeInvalid, "act: got %q, must be one of %q", act, acts())
	}
	return r.change(ctx, id, func(release *Release, current *Current) (bool, error) {
		return release.do(current, act, by, reason)
	})
}

// change applies an edit to a release and to what is current, in one commit. edit returns false to change nothing.
func (r *Releases) change(ctx context.Context, id string, edit func(release *Release, current *Current) (bool, error)) (Release, error) {
	for range maxTries {
		current, headVersion, err := r.head(ctx)
		if err != nil {
			return Release{}, err
		}
		release, version, err := r.get(ctx, id)
		if err != nil {
			return Release{}, err
		}
		before := current
		changed, err := edit(&release, &current)
		if err != nil || !changed {
			return release, err
		}
		head := &current
		if current.Equal(before) {
			head = nil
		}
		if err := r.write(ctx, &release, version, head, headVersion); !errors.Is(err, agl.ErrConflict) {
			return release, err
		}
	}
	return Release{}, errBusy()
}

// do applies an act, and reports whether it changed anything.
func (r *Release) do(current *Current, act Act, by, reason string) (bool, error) {
	refuse := func(why string) (bool, error) {
		return false, agl.Errorf(agl.CodeIllegalState, "release %s: cannot %s: it is %s%s", r.ID, act, r.State, why)
	}
	switch act {
	case ActPromote:
		if r.State == StatePromoted {
			return false, nil
		}
		if r.State != StateCanary {
			return refuse("; propose the candidate again")
		}
		r.State, r.Frozen = StatePromoted, false
		*current = current.withoutCanary()
		current.Stable = r.Candidate.over(current.Stable)
	case ActRollback:
		switch {
		case r.State == StateRolledBack:
			return false, nil
		case r.State == StatePromoted && current.Release != "":
			return refuse(fmt.Sprintf(", and %s came after it; roll that back first", current.Release))
		case r.State == StatePromoted && !r.stands(current):
			return refuse(", and another release was promoted after it; roll that back first")
		case r.State == StatePromoted:
			r.restore(current)
		default:
			*current = current.withoutCanary()
		}
		r.State, r.Frozen = StateRolledBack, false
	default:
		if r.State != StateCanary {
			return refuse("")
		}
		if r.Frozen == (act == ActFreeze) {
			return false, nil
		}
		r.Frozen = act == ActFreeze
	}
	r.Decisions = append(r.Decisions, Decision{Action: string(act), By: by, Reason: reason, Time: agl.TimestampOf(time.Now()), Evidence: r.Evidence})
	return true, nil
}

// stands reports whether what the release has promoted is still stable.
func (r *Release) stands(current *Current) bool {
	return (r.Candidate.ResourcesID == "" || r.Candidate.ResourcesID == current.Stable.ResourcesID) &&
		(r.Model == "" || r.Candidate.Model == current.Models(Stable)[r.Model])
}

// restore makes stable again what the release has replaced. What it does not name stays.
func (r *Release) restore(current *Current) {
	*current = current.about(r.Model)
	if r.Candidate.ResourcesID != "" {
		current.Stable.ResourcesID = r.Stable.ResourcesID
	}
	if r.Model != "" {
		current.Stable.Model = r.Stable.Model
	}
}

// ByGates is Decision.By if the gates decided.
const ByGates = "gates"

// Observe counts sessions of a release, which the collector returned between the cursors since and next, and decides.
// It changes nothing if the release has another cursor by now, because another process counted them, or if the
// release has no canary.
func (r *Releases) Observe(ctx context.Context, id, since, next string, sessions []Observation) (Release, error) {
	return r.change(ctx, id, func(release *Release, current *Current) (bool, error) {
		if release.State != StateCanary || release.Cursor != since || since == next {
			return false, nil
		}
		release.Cursor = next
		for _, o := range sessions {
			release.Evidence.Add(release.Gates, o)
			switch v := release.Gates.Decide(&release.Evidence); {
			case v.Action == Rollback:
				return release.do(current, ActRollback, ByGates, v.Reason)
			case v.Action == Promote && !release.Frozen:
				return release.do(current, ActPromote, ByGates, v.Reason)
			}
		}
		return true, nil
	})
}

// write writes a release and, if head is not nil, what is current, provided that they still have these versions.
func (r *Releases) write(ctx context.Context, release *Release, version int64, head *Current, headVersion int64) error {
	body, err := json.Marshal(release, json.Deterministic(true))
	if err != nil {
		return err
	}
	last := release.Decisions[len(release.Decisions)-1]
	writes := []agl.DocumentWrite{{
		Kind: kind, ID: release.ID, Body: body, IfVersion: agl.Some(version),
		Quiet: head == nil && last.Action != string(ActFreeze) && last.Action != string(ActResume), // sessions are counted often
	}}
	if head != nil {
		body, err := json.Marshal(head)
		if err != nil {
			return err
		}
		writes = append(writes, agl.DocumentWrite{Kind: kindHead, ID: idHead, Body: body, IfVersion: agl.Some(headVersion)})
	}
	_, err = r.documents.WriteDocuments(ctx, agl.WriteDocumentsParams{Writes: writes})
	return err
}
