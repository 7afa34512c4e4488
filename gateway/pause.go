package gateway

import (
	"net/http"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

func (g *Gateway) pause(w http.ResponseWriter, r *http.Request) error {
	asked, err := read(g, w, r, (*checker).pause)
	if err != nil {
		return err
	}
	return g.setPause(w, r, func(doc settingsDoc) settingsDoc {
		doc.Paused, doc.RetryAfter, doc.Reason = true, asked.RetryAfter, asked.Reason
		return doc
	})
}

func (c *checker) pause(doc jsontext.Value) (asked settingsDoc) {
	asked.RetryAfter = defaultRetryAfter
	if path := []any{"body"}; c.object(doc, path) {
		for name, value := range rawjson.Members(doc) {
			value := jsontext.Value(value)
			switch {
			case rawjson.NameIs(name, "retry_after_seconds"):
				asked.RetryAfter = c.integer(value, at(path, "retry_after_seconds"))
			case rawjson.NameIs(name, "reason") && value.Kind() != 'n':
				asked.Reason = agl.Some(c.text(value, at(path, "reason")))
			}
		}
	}
	return asked
}

func (g *Gateway) resume(w http.ResponseWriter, r *http.Request) error {
	return g.setPause(w, r, func(doc settingsDoc) settingsDoc {
		doc.Paused, doc.Reason = false, agl.Null[string]{}
		return doc
	})
}

// setPause changes the pause. The count in the answer includes every call that the old state has let through, see
// forward.
func (g *Gateway) setPause(w http.ResponseWriter, r *http.Request, edit func(doc settingsDoc) settingsDoc) error {
	doc, err := g.settings.update(r.Context(), edit)
	if err != nil {
		return err
	}
	g.writePause(w, doc)
	return nil
}

func (g *Gateway) proxyState(w http.ResponseWriter, r *http.Request) error {
	doc, err := g.settings.get(r.Context(), 0)
	if err != nil {
		return err
	}
	g.writePause(w, doc)
	return nil
}

func (g *Gateway) writePause(w http.ResponseWriter, doc settingsDoc) {
	o := rawjson.NewObject(nil)
	o.Bool("paused", doc.Paused)
	o.Int("retry_after_seconds", doc.RetryAfter)
	o.NullString("reason", doc.Reason.V, doc.Reason.Valid)
	o.Int("inflight", g.running.Load())
	writeJSON(w, http.StatusOK, o.End())
}
