package gateway

import (
	"context"
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

func errNoRollout(id string) error {
	return errStatus(http.StatusNotFound, "Rollout not found: "+id)
}

// find returns the rollout that has an id in this API.
func (g *Gateway) find(ctx context.Context, id string) (rollout, error) {
	for at := id; ; {
		stored, err := g.cfg.Store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: at})
		if agl.ErrorCode(err) == agl.CodeNotFound {
			return rollout{}, errNoRollout(id)
		}
		if err != nil {
			return rollout{}, err
		}
		r, ok := rolloutOf(stored)
		switch {
		case !ok || r.DeletedAt != 0 && r.Successor == "":
			return r, errNoRollout(id)
		case r.DeletedAt == 0:
			return r, nil
		}
		at = r.Successor
	}
}

// change is a change of a rollout for revise.
type change struct {
	record recordV1
	status *agl.RolloutStatus // of the store; nil keeps it
	number bool               // give the rollout its number in the terminal log
}

// revise changes a rollout by compare-and-set. edit sees the current state, and is called again if another writer was
// faster. It returns nil to change nothing.
func (g *Gateway) revise(ctx context.Context, r rollout, edit func(r *rollout) (*change, error)) (rollout, error) {
	for {
		c, err := edit(&r)
		if c == nil || err != nil {
			return r, err
		}
		p := agl.ReviseRolloutParams{RolloutID: r.storeID(), IfMetadata: r.Metadata, Status: c.status}
		if p.Metadata, err = withRecord(r.Metadata, c.record); err != nil {
			return r, err
		}
		if c.number {
			p.NumberKey, p.NumberMin = keyNumber, g.terminal.next()
		}
		stored, err := g.cfg.Store.ReviseRollout(ctx, p)
		switch agl.ErrorCode(err) {
		case "":
			if c.number {
				g.terminal.add(number(&stored.Rollout), stored.RolloutID)
			}
			r, _ = rolloutOf(stored)
			return r, nil
		case agl.CodeConflict:
			r, err = g.again(ctx, r)
		}
		if agl.ErrorCode(err) == agl.CodeNotFound {
			return r, errNoRollout(r.id())
		}
		if err != nil {
			return r, err
		}
		if r.DeletedAt != 0 {
			return r, errNoRollout(r.id())
		}
	}
}

// again reads a rollout once more. If the store does not return it, again returns r itself.
func (g *Gateway) again(ctx context.Context, r rollout) (rollout, error) {
	stored, err := g.cfg.Store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: r.storeID()})
	if err != nil {
		return r, err
	}
	r, ok := rolloutOf(stored)
	if !ok {
		return r, errNoRollout(stored.RolloutID)
	}
	return r, nil
}

// succeed stores which rollout takes over the id of a deleted one.
func (g *Gateway) succeed(ctx context.Context, r rollout, next string) (rollout, error) {
	for r.Successor == "" {
		rec := r.recordV1
		rec.Successor = next
		metadata, err := withRecord(r.Metadata, rec)
		if err != nil {
			return r, err
		}
		_, err = g.cfg.Store.ReviseRollout(ctx, agl.ReviseRolloutParams{RolloutID: r.storeID(), IfMetadata: r.Metadata, Metadata: metadata})
		if err != nil && agl.ErrorCode(err) != agl.CodeConflict {
			return r, err
		}
		if r, err = g.again(ctx, r); err != nil {
			return r, err
		}
	}
	return r, nil
}

func (g *Gateway) getRollout(w http.ResponseWriter, r *http.Request) error {
	found, err := g.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	if !found.status().state.Terminal() && r.URL.RawQuery != "" {
		if err := g.waitForEnd(r, &found); err != nil {
			return err
		}
		if found, err = g.find(r.Context(), found.id()); err != nil {
			return err
		}
	}
	out := found.appendJSON(append(make([]byte, 0, len(found.Input)+1024), `{"rollout":`...))
	out = append(out, `,"attempts":`...)
	out = rawjson.AppendArray(out, found.Attempts, rawjson.AppendString[string])
	writeJSON(w, http.StatusOK, append(out, '}'))
	return nil
}

// deleteRollout hides a rollout. Its data stays in the store.
func (g *Gateway) deleteRollout(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	found, err := g.find(r.Context(), id)
	if err == nil {
		_, err = g.revise(r.Context(), found, func(r *rollout) (*change, error) {
			c := &change{record: r.recordV1}
			c.record.DeletedAt = agl.TimestampOf(time.Now())
			if !r.Status.Finished() {
				c.status = new(agl.RolloutCancelled)
			}
			return c, nil
		})
	}
	if err != nil && errorStatus(err) != http.StatusNotFound {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
