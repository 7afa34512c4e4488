package client

import (
	"context"
	"net/http"

	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/rest/internal/wire"
)

// CurrentRelease returns what serves sessions that begin now.
func (c *Client) CurrentRelease(ctx context.Context) (release.Current, error) {
	return call[release.Current](ctx, c, operation{name: "CurrentRelease", method: http.MethodGet, path: wire.CurrentRelease, once: true})
}

// ListReleases returns all releases, the newest first.
func (c *Client) ListReleases(ctx context.Context) ([]release.Release, error) {
	found, err := call[map[string][]release.Release](ctx, c, operation{name: "ListReleases", method: http.MethodGet, path: wire.Releases})
	return found["items"], err
}

// GetRelease returns a release; agl.ErrNotFound.
func (c *Client) GetRelease(ctx context.Context, id string) (release.Release, error) {
	return call[release.Release](ctx, c, operation{name: "GetRelease", method: http.MethodGet, path: wire.Release(wire.Segment(id))})
}

// ProposeRelease starts a release in the name of the client's key. It is not retried if the answer is lost.
func (c *Client) ProposeRelease(ctx context.Context, p release.Proposal) (release.Release, error) {
	body := wire.NewRelease{Candidate: p.Candidate, Model: p.Model, Share: p.Share, Gates: p.Gates, Suite: p.Suite}
	return send[release.Release](ctx, c, operation{name: "ProposeRelease", path: wire.Releases, unsent: true}, &body)
}

// ActOnRelease promotes, rolls back, freezes or resumes a release, in the name of the client's key.
func (c *Client) ActOnRelease(ctx context.Context, id string, act release.Act, reason string) (release.Release, error) {
	return send[release.Release](ctx, c, operation{name: "ActOnRelease", path: wire.ReleaseAct(wire.Segment(id), act)}, &wire.ActOnRelease{Reason: reason})
}
