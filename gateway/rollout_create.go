package gateway

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/randomid"
	"github.com/agl-go/agl/internal/rawjson"
)

func (g *Gateway) createRollouts(w http.ResponseWriter, r *http.Request) error {
	asked, err := read(g, w, r, (*checker).creations)
	if err != nil {
		return err
	}
	p := agl.CreateRolloutsParams{Rollouts: make([]agl.CreateRollout, len(asked))}
	for i := range asked {
		if asked[i].id == "" {
			asked[i].id = randomid.Hex(16)
		}
	}
	groups(asked)
	for i := range asked {
		if p.Rollouts[i], err = asked[i].create(g.cfg.Runners); err != nil {
			return err
		}
	}
	if err := callerOf(r).reserve(r.Context(), access.Amounts{Rollouts: int64(len(asked))}); err != nil {
		return err
	}
	stored, err := g.cfg.Store.CreateRollouts(r.Context(), p)
	if err != nil {
		return err
	}
	out := make([][]byte, len(stored))
	for i := range stored {
		made, err := g.created(r.Context(), stored[i], p.Rollouts[i])
		if err != nil {
			return err
		}
		out[i] = made.appendJSON(nil)
	}
	writeJSON(w, http.StatusCreated, arrayOf(out))
	return nil
}

// created returns the rollout that a creation made or found. If it found a deleted rollout, another one takes over
// the id.
func (g *Gateway) created(ctx context.Context, stored agl.AttemptedRollout, asked agl.CreateRollout) (_ rollout, err error) {
	id := asked.RolloutID
	for n := 2; ; n++ {
		r, ok := rolloutOf(stored)
		switch {
		case !ok:
			return r, errStatus(http.StatusUnprocessableEntity, "rollout_id: "+id+" is the id of a rollout that was not created by this API; choose another")
		case r.DeletedAt == 0:
			return r, nil
		}
		next := r.Successor
		if next == "" {
			next = id + "~" + strconv.Itoa(n)
			if r, err = g.succeed(ctx, r, next); err != nil {
				return r, err
			}
		}
		asked.RolloutID = next
		fresh := recordV1{}
		raw, _ := rawjson.Get(asked.Metadata, keyRecord)
		if err := rawjson.Unmarshal(raw, &fresh); err != nil {
			return r, err
		}
		fresh.ID = id
		if asked.Metadata, err = withRecord(asked.Metadata, fresh); err != nil {
			return r, err
		}
		made, err := g.cfg.Store.CreateRollouts(ctx, agl.CreateRolloutsParams{Rollouts: []agl.CreateRollout{asked}})
		if err != nil {
			return r, err
		}
		stored = made[0]
	}
}

// creations reads the body of POST /api/rollouts.
func (c *checker) creations(doc jsontext.Value) []creation {
	path := []any{"body"}
	if !c.list(doc, path) {
		return nil
	}
	var out []creation
	for raw := range rawjson.Elements(doc) {
		out = append(out, c.creation(raw, at(path, len(out))))
	}
	return out
}

func (c *checker) creation(raw jsontext.Value, path []any) (made creation) {
	made = creation{train: true, config: jsontext.Value(`{"timeout_seconds":3600,"local":null,"k8s":null}`), timeout: defaultTimeout, metadata: noMetadata}
	if !c.object(raw, path) {
		return made
	}
	fields := fieldsOf(raw)
	if !c.missing(fields["input"], raw, at(path, "input")) {
		made.input = fields["input"]
	}
	if v := fields["is_train"]; v != nil {
		made.train = c.boolean(v, at(path, "is_train"))
	}
	if v := fields["config"]; v != nil && v.Kind() != 'n' {
		c.config(&made, v, at(path, "config"))
	}
	if v := fields["metadata"]; v != nil && v.Kind() != 'n' {
		made.metadata = c.metadata(v, at(path, "metadata"))
	}
	if v := fields["rollout_id"]; v != nil && v.Kind() != 'n' {
		made.id = c.text(v, at(path, "rollout_id"))
		if slices.Contains([]string{".", "..", "terminal", "status"}, made.id) {
			c.refuse("value_error", "A rollout with this id could not be addressed by a path", v, at(path, "rollout_id"))
		}
	}
	return made
}

const defaultTimeout = 3600 // seconds

var noMetadata = jsontext.Value(`{"batch_idx":null,"sample_idx_in_batch":null}`)

// config reads the config of a rollout.
func (c *checker) config(made *creation, raw jsontext.Value, path []any) {
	if !c.object(raw, path) {
		return
	}
	local, k8s := rawjson.Null(), rawjson.Null()
	for name, value := range rawjson.Members(raw) {
		value := jsontext.Value(value)
		switch {
		case rawjson.NameIs(name, "timeout_seconds"):
			made.timeout = c.integer(value, at(path, "timeout_seconds"))
		case value.Kind() == 'n':
		case rawjson.NameIs(name, "local"):
			made.agent = true
			local = c.local(value, at(path, "local"))
		case rawjson.NameIs(name, "k8s"):
			made.agent = true
			k8s = c.job(value, at(path, "k8s"))
		}
	}
	o := rawjson.NewObject(nil)
	o.Int("timeout_seconds", made.timeout)
	o.Raw("local", local)
	o.Raw("k8s", k8s)
	made.config = o.End()
}

func (c *checker) local(raw jsontext.Value, path []any) jsontext.Value {
	if !c.object(raw, path) {
		return rawjson.Null()
	}
	class, env := rawjson.Null(), jsontext.Value("{}")
	for name, value := range rawjson.Members(raw) {
		switch {
		case rawjson.NameIs(name, "agent_class"):
			if class = value; class.Kind() != 'n' {
				c.text(class, at(path, "agent_class"))
			}
		case rawjson.NameIs(name, "env_map"):
			if env = value; !c.dict(env, at(path, "env_map")) {
				continue
			}
			for key, value := range rawjson.Members(env) {
				c.text(value, at(path, "env_map", rawjson.UnquoteName(key)))
			}
		}
	}
	o := rawjson.NewObject(nil)
	o.Raw("agent_class", class)
	o.Raw("env_map", env)
	return o.End()
}

func (c *checker) job(raw jsontext.Value, path []any) jsontext.Value {
	if !c.object(raw, path) {
		return rawjson.Null()
	}
	template := rawjson.Null()
	for name, value := range rawjson.Members(raw) {
		if rawjson.NameIs(name, "job_template") {
			if template = value; template.Kind() != 'n' {
				c.text(template, at(path, "job_template"))
			}
		}
	}
	o := rawjson.NewObject(nil)
	o.Raw("job_template", template)
	return o.End()
}

// metadata reads the metadata of a rollout: two integers, and any other members.
func (c *checker) metadata(raw jsontext.Value, path []any) jsontext.Value {
	if !c.object(raw, at(path, "RolloutMetadata")) {
		c.dict(raw, at(path, "dict[str,any]"))
		return noMetadata
	}
	indexes := [2]jsontext.Value{rawjson.Null(), rawjson.Null()}
	names := [2]string{"batch_idx", "sample_idx_in_batch"}
	rest := rawjson.NewObject(nil)
	for spelled, value := range rawjson.Members(raw) {
		name, value := rawjson.UnquoteName(spelled), jsontext.Value(value)
		if i := slices.Index(names[:], name); i >= 0 {
			if value.Kind() != 'n' {
				indexes[i] = rawjson.AppendInt(nil, c.integer(value, at(path, name)))
			}
			continue
		}
		if reserved(name) {
			c.refuse("value_error", "The name "+name+" is reserved", value, at(path, name))
			continue
		}
		rest.Member(spelled, value)
	}
	o := rawjson.NewObject(nil)
	for i := range names {
		o.Raw(names[i], indexes[i])
	}
	o.Members(rest.End())
	return o.End()
}
