package gateway

import (
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/rawjson"
)

// patch is the body of PATCH. Fields that are set replace the stored ones.
type patch struct {
	empty                                   bool
	state                                   *State // empty means null
	k8sJobName, lastAttemptID, errorMessage *agl.Null[string]
}

// statusFields are the parts of a status that a PATCH may set.
func statusFields() []string {
	return []string{"state", "k8s_job_name", "last_attempt_id", "error_message"}
}

func (c *checker) patch(doc jsontext.Value) (p patch) {
	path := []any{"body"}
	p.empty = true
	if !c.object(doc, path) {
		return p
	}
	raw, _ := rawjson.Get(doc, "status")
	path = at(path, "status")
	if raw == nil || raw.Kind() == 'n' || !c.object(raw, path) {
		return p
	}
	fields, extra := map[string]jsontext.Value{}, []string(nil)
	for name, value := range rawjson.Members(raw) {
		name := rawjson.UnquoteName(name)
		if fields[name] == nil && !slices.Contains(statusFields(), name) {
			extra = append(extra, name)
		}
		fields[name] = value
	}
	p.empty = len(fields) == 0
	if v := fields["state"]; v != nil {
		p.state = new(State)
		if v.Kind() != 'n' {
			*p.state = c.state(v, at(path, "state"))
		}
	}
	for i, to := range []**agl.Null[string]{&p.k8sJobName, &p.lastAttemptID, &p.errorMessage} {
		name := statusFields()[i+1]
		switch v := fields[name]; {
		case v == nil:
		case v.Kind() == 'n':
			*to = &agl.Null[string]{}
		default:
			*to = new(agl.Some(c.text(v, at(path, name))))
		}
	}
	for _, name := range extra {
		c.refuse("extra_forbidden", "Extra inputs are not permitted", fields[name], at(path, name))
	}
	return p
}

func (g *Gateway) patchRollout(w http.ResponseWriter, r *http.Request) error {
	p, err := read(g, w, r, (*checker).patch)
	if err != nil {
		return err
	}
	found, err := g.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	found, err = g.revise(r.Context(), found, p.apply)
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, found.appendJSON(nil))
	return nil
}

// apply returns the change, or an error if the transition is not allowed.
func (p *patch) apply(r *rollout) (*change, error) {
	if p.empty {
		return nil, nil
	}
	now := r.status()
	c := &change{record: r.recordV1}
	if p.state != nil {
		if r.ofRunners() && *p.state != StateFailed {
			return nil, errStatus(http.StatusConflict, "Rollout "+r.id()+": it belongs to the runners of this store; they report its state")
		}
		if !now.state.next(*p.state) {
			to := string(*p.state)
			if to == "" {
				to = "None"
			}
			return nil, errStatus(http.StatusConflict, "Rollout "+r.id()+": cannot transition "+string(now.state)+" -> "+to)
		}
		c.record.State = *p.state
		c.status, c.number = new(p.state.stored()), p.state.Terminal()
	}
	for _, field := range []struct{ to, from *agl.Null[string] }{
		{&c.record.K8sJobName, p.k8sJobName}, {&c.record.LastAttemptID, p.lastAttemptID}, {&c.record.ErrorMessage, p.errorMessage},
	} {
		if field.from != nil {
			*field.to = *field.from
		}
	}
	if p.state == nil && now.state != r.State && r.State != "" {
		c.record.State = now.state // the store has ended the rollout; keep its status
	}
	if p.errorMessage == nil {
		c.record.ErrorMessage = now.errorMessage
	}
	c.record.Version = now.version + 1
	c.record.UpdatedAt = later(now.updatedAt, agl.TimestampOf(time.Now()))
	return c, nil
}

// cancelRollout ends a rollout that has not ended. Its trainer sees it fail with the message "cancelled". The
// original server has no such route.
func (g *Gateway) cancelRollout(w http.ResponseWriter, r *http.Request) error {
	found, err := g.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	found, err = g.revise(r.Context(), found, func(r *rollout) (*change, error) {
		if r.status().state.Terminal() {
			return nil, nil
		}
		p := patch{state: new(StateFailed), errorMessage: new(agl.Some("cancelled"))}
		c, err := p.apply(r)
		if err == nil {
			c.status = new(agl.RolloutCancelled)
		}
		return c, err
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, found.appendJSON(nil))
	return nil
}
