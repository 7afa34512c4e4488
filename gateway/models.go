package gateway

import (
	"net/http"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl/internal/rawjson"
)

func (g *Gateway) registerModels(w http.ResponseWriter, r *http.Request) error {
	models, err := read(g, w, r, (*checker).models)
	if err != nil {
		return err
	}
	_, err = g.settings.update(r.Context(), func(doc settingsDoc) settingsDoc {
		all := slices.Clone(doc.Models)
		if len(models) > 0 {
			doc.Registrations++
		}
		for _, m := range models {
			m.Registration = doc.Registrations
			i := slices.IndexFunc(all, func(known Model) bool { return known.Model == m.Model && known.Endpoint == m.Endpoint })
			if i < 0 {
				all = append(all, m)
			} else {
				all[i] = m
			}
		}
		doc.Models = all
		return doc
	})
	if err != nil {
		return err
	}
	out := rawjson.AppendArray(nil, models, func(dst []byte, m Model) []byte {
		o := rawjson.NewObject(dst)
		o.String("model", m.Model)
		o.String("endpoint", m.Endpoint)
		o.Int("version", m.Version)
		return o.End()
	})
	writeJSON(w, http.StatusCreated, out)
	return nil
}

func (c *checker) models(doc jsontext.Value) (out []Model) {
	path := []any{"body"}
	if !c.list(doc, path) {
		return nil
	}
	for raw := range rawjson.Elements(doc) {
		path := at(path, len(out))
		var m Model
		if c.object(raw, path) {
			fields := fieldsOf(raw)
			for _, f := range []struct {
				name string
				to   *string
			}{{"model", &m.Model}, {"endpoint", &m.Endpoint}} {
				if !c.missing(fields[f.name], raw, at(path, f.name)) {
					*f.to = c.text(fields[f.name], at(path, f.name))
				}
			}
			if v := fields["version"]; v != nil {
				m.Version = c.integer(v, at(path, "version"))
			}
		}
		out = append(out, m)
	}
	return out
}

func (g *Gateway) deleteModels(w http.ResponseWriter, r *http.Request) error {
	_, err := g.settings.update(r.Context(), func(doc settingsDoc) settingsDoc {
		doc.Models = nil
		return doc
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, []byte(`{"status":"ok"}`))
	return nil
}
