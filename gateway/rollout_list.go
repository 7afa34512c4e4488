package gateway

import (
	"context"
	"iter"
	"net/http"
	"slices"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

func (g *Gateway) listTerminal(w http.ResponseWriter, r *http.Request) error {
	var c checker
	query := r.URL.Query()
	after := max(int(c.queryInteger(query, "after", 0)), 0)
	limit := max(int(c.queryInteger(query, "limit", 1000)), 1)
	if err := c.errProblems(); err != nil {
		return err
	}
	if err := g.waitForMore(r, after); err != nil {
		return err
	}
	ids, total, err := g.terminal.slice(r.Context(), after, limit)
	if err != nil {
		return err
	}
	found, err := g.storedOf(r.Context(), ids)
	if err != nil {
		return err
	}
	var items [][]byte
	for _, id := range ids {
		one, ok := rolloutOf(found[id])
		if !ok || one.DeletedAt != 0 {
			continue
		}
		o := rawjson.NewObject(nil)
		o.String("rollout_id", one.id())
		o.String("state", string(one.status().state))
		o.String("data_id", one.dataID())
		o.Bool("is_train", one.Mode != agl.ModeVal)
		items = append(items, o.End())
	}
	o := rawjson.NewObject(nil)
	o.Raw("items", arrayOf(items))
	o.Int("next_after", int64(after+len(ids)))
	o.Int("total_terminal", int64(total))
	writeJSON(w, http.StatusOK, o.End())
	return nil
}

// storedOf returns the stored rollouts with these ids, by their ids.
func (g *Gateway) storedOf(ctx context.Context, ids []string) (map[string]agl.AttemptedRollout, error) {
	found := make(map[string]agl.AttemptedRollout, len(ids))
	if len(ids) == 0 {
		return found, nil
	}
	page, err := g.cfg.Store.QueryRollouts(ctx, agl.QueryRolloutsParams{RolloutIDIn: ids, Paging: agl.Paging{Limit: -1}})
	for _, stored := range page.Items {
		found[stored.RolloutID] = stored
	}
	return found, err
}

// storedIn yields the stored rollouts that may have one of the states.
func storedIn(ctx context.Context, store agl.Store, states []State) iter.Seq2[*agl.AttemptedRollout, error] {
	return agl.Pages(ctx, agl.Paging{}, listPage, func(ctx context.Context, p agl.Paging) (agl.Page[agl.AttemptedRollout], error) {
		return store.QueryRollouts(ctx, agl.QueryRolloutsParams{StatusIn: statusesOf(states), Paging: p})
	})
}

func (g *Gateway) listRollouts(w http.ResponseWriter, r *http.Request) error {
	var c checker
	query := r.URL.Query()
	var states []State
	for i, value := range query["state_in"] {
		states = append(states, c.state(queryText(value), []any{"query", "state_in", i}))
	}
	if len(states) == 0 {
		c.missing(nil, nil, []any{"query", "state_in"})
	}
	limit := int(c.queryInteger(query, "limit", 500))
	if err := c.errProblems(); err != nil {
		return err
	}
	var matches [][]byte
	for stored, err := range storedIn(r.Context(), g.cfg.Store, states) {
		if err != nil {
			return err
		}
		one, ok := rolloutOf(*stored)
		if ok && one.DeletedAt == 0 && !one.ofRunners() && slices.Contains(states, one.status().state) {
			matches = append(matches, one.appendJSON(nil))
		}
		if limit >= 0 && len(matches) >= limit {
			break
		}
	}
	end := min(limit, len(matches))
	if limit < 0 { // as Python slices
		end = max(len(matches)+limit, 0)
	}
	writeJSON(w, http.StatusOK, arrayOf(matches[:end]))
	return nil
}

// queryInteger reads an integer of a query, or returns the default.
func (c *checker) queryInteger(query map[string][]string, name string, byDefault int64) int64 {
	values := query[name]
	if len(values) == 0 {
		return byDefault
	}
	return c.integer(queryText(values[len(values)-1]), []any{"query", name})
}

// waitForMore waits until the terminal log is longer than after.
func (g *Gateway) waitForMore(r *http.Request, after int) error {
	return g.waiting(r, func(ctx context.Context) error {
		for {
			total, changed := g.terminal.length()
			if total > after {
				return nil
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
}
