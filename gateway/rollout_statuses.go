package gateway

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

// maxStatuses is the number of rollouts that one request may ask for.
const maxStatuses = 256

// rolloutStatuses answers with the status of each rollout in a list of ids. This route exists since version 1.0.3,
// whose trainer polls it.
func (g *Gateway) rolloutStatuses(w http.ResponseWriter, r *http.Request) error {
	ids, err := read(g, w, r, (*checker).ids)
	if err != nil {
		return err
	}
	found, err := g.storedOf(r.Context(), ids)
	if err != nil {
		return err
	}
	o := rawjson.NewObject(nil)
	done := make(map[string]struct{}, len(ids))
	for _, id := range ids {
		if _, again := done[id]; again {
			continue
		}
		done[id] = struct{}{}
		one, ok := rolloutOf(found[id])
		if !ok || one.DeletedAt != 0 {
			if one, err = g.find(r.Context(), id); err != nil {
				return err
			}
		}
		o.AnyKey(id)
		o = one.appendStatus(o)
	}
	writeJSON(w, http.StatusOK, o.End())
	return nil
}

func (c *checker) ids(doc jsontext.Value) (ids []string) {
	path := []any{"body"}
	if !c.list(doc, path) {
		return nil
	}
	for raw := range rawjson.Elements(doc) {
		ids = append(ids, c.text(raw, at(path, len(ids))))
	}
	if len(ids) > maxStatuses {
		c.refuse("too_long", "List should have at most 256 items", doc, path)
	}
	return ids
}
