package proxy

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/backoff"
	"github.com/agl-go/agl/proxy/session"
	"github.com/agl-go/agl/release"
)

// Releases returns the current release, which says which models and resources serve live
// sessions. A client of the store is one, and so is a release.Releases.
type Releases interface {
	CurrentRelease(ctx context.Context) (release.Current, error)
}

const (
	// releasePace is how often a proxy asks for the current release, so that a rollback reaches
	// every proxy within a second.
	releasePace = 400 * time.Millisecond
	// absentReleasePace is the pace at a store that has no releases. It may be upgraded, and an
	// archived project come back.
	absentReleasePace = 30 * time.Second
	// releaseTimeout bounds one such request.
	releaseTimeout = 5 * time.Second
	// keptReleases is how many releases are remembered, for sessions that began at another proxy
	// with one of them.
	keptReleases = 16
)

// releases polls the current release.
type releases struct {
	source Releases
	models func() []string // names of the models that the proxy serves
	log    *slog.Logger

	mu     sync.Mutex
	recent []release.Current   // the newest first
	lacks  map[string]struct{} // the models that the newest names and the proxy does not serve; each is logged once
	stop   context.CancelFunc  // nil before start
	polls  sync.WaitGroup
}

// start polls the current release until close. It does not wait for the first answer: until
// then, sessions get the models and resources that they ask for.
func (r *releases) start(ctx context.Context) {
	if r.source == nil {
		return
	}
	ctx, r.stop = context.WithCancel(ctx)
	r.polls.Go(func() { r.follow(ctx) })
}

func (r *releases) close() {
	if r.stop != nil {
		r.stop()
		r.polls.Wait()
	}
}

func (r *releases) follow(ctx context.Context) {
	var last agl.Code // of the last answer
	for ctx.Err() == nil {
		asked, cancel := context.WithTimeout(ctx, releaseTimeout)
		current, err := r.source.CurrentRelease(asked)
		cancel()
		pace, code := releasePace, agl.ErrorCode(err)
		switch {
		case code == agl.CodeUnimplemented || code == agl.CodeNotFound:
			pace = absentReleasePace
			if code != last {
				r.log.Debug("the store has no releases", "error", err)
			}
		case err != nil && ctx.Err() == nil && code != last:
			r.log.Warn("the store does not say which release is current; sessions go on with the last one", "error", err)
		case err == nil:
			r.set(current)
		}
		last = code
		_ = backoff.Sleep(ctx, pace) // the end of ctx ends the loop
	}
}

func (r *releases) set(current release.Current) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.recent) > 0 && r.recent[0].Equal(current) {
		return
	}
	r.lacks = nil
	r.recent = append([]release.Current{current}, r.recent[:min(len(r.recent), keptReleases-1)]...)
}

// assignments implements session.Config.Assign.
func (r *releases) assignments(key string) []session.Assignment {
	served := r.models()
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []session.Assignment
	for i := range r.recent {
		list = append(list, r.assign(&r.recent[i], key, served))
	}
	return list
}

// assign returns the assignment of a session by one release. The caller holds the lock.
func (r *releases) assign(current *release.Current, key string, served []string) (a session.Assignment) {
	arm := current.Arm(key)
	if model := current.Candidate.Model; model != "" && !slices.Contains(served, model) {
		arm = release.Stable
		if current == &r.recent[0] {
			r.lack(model, "this proxy does not serve the candidate of a release, so its sessions take no part", "release", current.Release)
		}
	} else if current.Release != "" {
		a.Metadata = map[string]any{release.MetadataRelease: current.Release, release.MetadataArm: arm.String(), release.MetadataShare: current.Share}
	}
	a.ResourcesID, a.Models = current.Version(arm).ResourcesID, r.answering(current, arm, served)
	return a
}

// answering returns the models that answer in an arm and are served here, by the names that programs ask for; nil if these answer
// themselves. The caller holds the lock.
func (r *releases) answering(current *release.Current, arm release.Arm, served []string) map[string]string {
	var models map[string]string
	for asked, model := range current.Models(arm) {
		switch {
		case model == asked:
		case slices.Contains(served, model):
			if models == nil {
				models = map[string]string{}
			}
			models[asked] = model
		case current == &r.recent[0]:
			r.lack(model, "this proxy does not serve a model that a release has promoted, so the model that programs ask for answers itself", "asked", asked)
		}
	}
	return models
}

// lack logs that the proxy does not serve a model. The caller holds the lock.
func (r *releases) lack(model, message string, more ...any) {
	if _, logged := r.lacks[model]; !logged {
		if r.lacks == nil {
			r.lacks = map[string]struct{}{}
		}
		r.lacks[model] = struct{}{}
		r.log.Error(message, append(more, "model", model)...)
	}
}

// stable returns the exchange.Origin.Models of calls that belong to no session.
func (r *releases) stable() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.recent) == 0 || r.recent[0].Model == "" { // no release has ever been about a model
		return nil
	}
	return r.answering(&r.recent[0], release.Stable, r.models())
}

// ofSession returns the exchange.Origin.Models of the calls of a session. Where a model that it began with is no longer served, such
// as a candidate that was taken out of the configuration after its rollback, it goes on with what is stable: its users must not get
// errors about a model that their program never asked for.
func (r *releases) ofSession(s *session.Session) map[string]string {
	if len(s.Models) == 0 {
		return s.Models
	}
	served := r.models()
	if !slices.ContainsFunc(slices.Collect(maps.Values(s.Models)), func(model string) bool { return !slices.Contains(served, model) }) {
		return s.Models
	}
	models := r.stable()
	for asked, model := range s.Models {
		if slices.Contains(served, model) {
			if models == nil {
				models = map[string]string{}
			}
			models[asked] = model
			continue
		}
		r.mu.Lock()
		r.lack(model, "this proxy no longer serves the model of running sessions, so they go on with what is stable", "asked", asked)
		r.mu.Unlock()
	}
	return models
}
