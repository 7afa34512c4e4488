package proxy

import (
	"context"
	"log/slog"
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
	recent []release.Current // the newest first
	lacks  string            // the release whose candidate the proxy does not serve; logged once
	stop   context.CancelFunc
	done   chan struct{}
}

// start polls the current release until close. It does not wait for the first answer: until
// then, sessions get the models and resources that they ask for.
func (r *releases) start(ctx context.Context) {
	if r.source == nil {
		return
	}
	ctx, r.stop = context.WithCancel(ctx)
	r.done = make(chan struct{})
	go func() {
		defer close(r.done)
		r.follow(ctx)
	}()
}

func (r *releases) close() {
	if r.done != nil {
		r.stop()
		<-r.done
	}
}

func (r *releases) follow(ctx context.Context) {
	failing := false
	for ctx.Err() == nil {
		asked, cancel := context.WithTimeout(ctx, releaseTimeout)
		current, err := r.source.CurrentRelease(asked)
		cancel()
		switch code := agl.ErrorCode(err); {
		case code == agl.CodeUnimplemented || code == agl.CodeNotFound: // a server without releases
			r.log.Debug("the store has no releases", "error", err)
			return
		case err != nil && ctx.Err() == nil && !failing:
			r.log.Warn("the store does not say which release is current; sessions go on with the last one", "error", err)
		case err == nil:
			r.set(current)
		}
		failing = err != nil
		_ = backoff.Sleep(ctx, releasePace) // the end of ctx ends the loop
	}
}

func (r *releases) set(current release.Current) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.recent) > 0 && r.recent[0] == current {
		return
	}
	r.recent = append([]release.Current{current}, r.recent[:min(len(r.recent), keptReleases-1)]...)
}

// assignments implements session.Config.Assign.
func (r *releases) assignments(key string) []session.Assignment {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []session.Assignment
	for i := range r.recent {
		list = append(list, r.assign(&r.recent[i], key))
	}
	return list
}

// assign returns the assignment of a session by one release. The caller holds the lock.
func (r *releases) assign(current *release.Current, key string) (a session.Assignment) {
	arm := current.Arm(key)
	version := current.Version(arm)
	if model := current.Candidate.Model; model != "" && !slices.Contains(r.models(), model) {
		if r.lacks != current.Release {
			r.lacks = current.Release
			r.log.Error("this proxy does not serve the candidate of a release, so its sessions take no part", "release", current.Release, "model", model)
		}
		version = current.Stable
	} else if current.Release != "" {
		a.Metadata = map[string]any{release.MetadataRelease: current.Release, release.MetadataArm: arm.String(), release.MetadataShare: current.Share}
	}
	a.ResourcesID, a.Models = version.ResourcesID, r.served(current.Model, version.Model)
	return a
}

// served returns the Models of an assignment: nil if the model is the one asked for, or is not
// served here.
func (r *releases) served(asked, model string) map[string]string {
	if asked == "" || model == "" || model == asked || !slices.Contains(r.models(), model) {
		return nil
	}
	return map[string]string{asked: model}
}

// stable returns the exchange.Origin.Models of calls that belong to no session.
func (r *releases) stable() map[string]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.recent) == 0 {
		return nil
	}
	return r.served(r.recent[0].Model, r.recent[0].Stable.Model)
}
