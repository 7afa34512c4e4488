package gateway

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/internal/rawjson"
)

func errNoRollout(id string) error {
	return errStatus(http.StatusNotFound, "Rollout not found: "+id)
}

// find returns the rollout that a client means by an id.
func (g *Gateway) find(ctx context.Context, id string) (rollout, error) {
	for at := id; ; {
		stored, err := g.cfg.Store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: at})
		if agl.ErrorCode(err) == agl.CodeNotFound {
			return rollout{}, errNoRollout(id)
		}
		if err != nil {
			return rollout{}, err
		}
		r, ok, err := rolloutOf(stored)
		switch {
		case err != nil:
			return r, err
		case !ok || r.DeletedAt != 0 && r.Successor == "":
			return r, errNoRollout(id)
		case r.DeletedAt == 0:
			return r, nil
		}
		at = r.Successor
	}
}

// change is what revise does to a rollout.
type change struct {
	record recordV1
	status *agl.RolloutStatus // of the store; nil keeps it
	number bool               // the rollout gets its place in the terminal log
}

// revise changes a rollout by compare-and-set: edit sees the present state, and is
// called again when another writer was faster. An edit without a change returns nil.
func (g *Gateway) revise(ctx context.Context, r rollout, edit func(r *rollout) (*change, error)) (rollout, error) {
	for {
		c, err := edit(&r)
		if c == nil || err != nil {
			return r, err
		}
		p := agl.ReviseRolloutParams{RolloutID: r.storeID(), IfMetadata: r.Metadata, Status: c.status}
		if p.Metadata, err = r.withRecord(c.record); err != nil {
			return r, err
		}
		if c.number {
			p.NumberKey, p.NumberMin = keyNumber, g.terminal.next()
		}
		stored, err := g.cfg.Store.ReviseRollout(ctx, p)
		switch agl.ErrorCode(err) {
		case "":
			if c.number {
				g.terminal.add(&stored.Rollout)
			}
			r, _, err = rolloutOf(stored)
			return r, err
		case agl.CodeConflict:
			stored, err = g.cfg.Store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: r.storeID()})
			if err == nil {
				r, _, err = rolloutOf(stored)
			}
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

func (g *Gateway) createRollouts(w http.ResponseWriter, r *http.Request) error {
	doc, err := g.body(w, r)
	if err != nil {
		return err
	}
	var c checker
	asked := c.creations(doc)
	if err := c.errProblems(); err != nil {
		return err
	}
	p := agl.CreateRolloutsParams{Rollouts: make([]agl.CreateRollout, len(asked))}
	for i := range asked {
		if asked[i].id == "" {
			asked[i].id = newID()
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
	out := []byte{'['}
	for i := range stored {
		made, err := g.created(r.Context(), stored[i], p.Rollouts[i])
		if err != nil {
			return err
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = made.appendJSON(out)
	}
	writeJSON(w, http.StatusCreated, append(out, ']'))
	return nil
}

// created returns the rollout that a creation has made or found. Where it has found one
// that was deleted, another takes over the id.
func (g *Gateway) created(ctx context.Context, stored agl.AttemptedRollout, asked agl.CreateRollout) (rollout, error) {
	id := asked.RolloutID
	for n := 2; ; n++ {
		r, ok, err := rolloutOf(stored)
		switch {
		case err != nil:
			return r, err
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
		if asked.Metadata, err = (&rollout{AttemptedRollout: agl.AttemptedRollout{Rollout: agl.Rollout{Metadata: asked.Metadata}}}).withRecord(fresh); err != nil {
			return r, err
		}
		made, err := g.cfg.Store.CreateRollouts(ctx, agl.CreateRolloutsParams{Rollouts: []agl.CreateRollout{asked}})
		if err != nil {
			return r, err
		}
		stored = made[0]
	}
}

// succeed names the rollout that takes over the id of a deleted one.
func (g *Gateway) succeed(ctx context.Context, r rollout, next string) (rollout, error) {
	for r.Successor == "" {
		rec := r.recordV1
		rec.Successor = next
		metadata, err := r.withRecord(rec)
		if err != nil {
			return r, err
		}
		_, err = g.cfg.Store.ReviseRollout(ctx, agl.ReviseRolloutParams{RolloutID: r.storeID(), IfMetadata: r.Metadata, Metadata: metadata})
		if err != nil && agl.ErrorCode(err) != agl.CodeConflict {
			return r, err
		}
		stored, err := g.cfg.Store.GetRollout(ctx, agl.GetRolloutParams{RolloutID: r.storeID()})
		if err == nil {
			r, _, err = rolloutOf(stored)
		}
		if err != nil {
			return r, err
		}
	}
	return r, nil
}

// newID returns 32 hexadecimal digits.
func newID() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // never fails
	return hex.EncodeToString(raw[:])
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
	fields := map[string]jsontext.Value{}
	for name, value := range rawjson.Members(raw) {
		fields[rawjson.UnquoteName(name)] = value
	}
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
			c.refuse("value_error", "No path leads to a rollout of this id", v, at(path, "rollout_id"))
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

// metadata reads the metadata of a rollout: two integers, and whatever else there is.
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

// listPage is how many rollouts are read at once.
const listPage = 1000

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
	for offset := 0; limit < 0 || len(matches) < limit; {
		page, err := g.cfg.Store.QueryRollouts(r.Context(), agl.QueryRolloutsParams{StatusIn: statusesOf(states), Paging: agl.Paging{Limit: listPage, Offset: offset}})
		if err != nil {
			return err
		}
		for _, stored := range page.Items {
			one, ok, err := rolloutOf(stored)
			if err != nil {
				return err
			}
			if ok && one.DeletedAt == 0 && !one.ofRunners() && slices.Contains(states, one.status().state) {
				matches = append(matches, one.appendJSON(nil))
			}
		}
		if offset += len(page.Items); len(page.Items) < listPage {
			break
		}
	}
	end := min(limit, len(matches))
	if limit < 0 { // as Python slices
		end = max(len(matches)+limit, 0)
	}
	out := []byte{'['}
	for i, one := range matches[:end] {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(out, one...)
	}
	writeJSON(w, http.StatusOK, append(out, ']'))
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

// patch is the body of PATCH: what is set replaces what was.
type patch struct {
	empty                                   bool
	state                                   *State // empty is null
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
			text := agl.Some(c.text(v, at(path, name)))
			*to = &text
		}
	}
	for _, name := range extra {
		c.refuse("extra_forbidden", "Extra inputs are not permitted", fields[name], at(path, name))
	}
	return p
}

func (g *Gateway) patchRollout(w http.ResponseWriter, r *http.Request) error {
	doc, err := g.body(w, r)
	if err != nil {
		return err
	}
	var c checker
	p := c.patch(doc)
	if err := c.errProblems(); err != nil {
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

// apply makes the change, or the error for a transition that is not allowed.
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
		status := p.state.stored()
		c.status, c.number = &status, p.state.Terminal()
	}
	for _, field := range []struct{ to, from *agl.Null[string] }{
		{&c.record.K8sJobName, p.k8sJobName}, {&c.record.LastAttemptID, p.lastAttemptID}, {&c.record.ErrorMessage, p.errorMessage},
	} {
		if field.from != nil {
			*field.to = *field.from
		}
	}
	if p.state == nil && now.state != r.State && r.State != "" {
		c.record.State = now.state // the store has ended it; keep what its status says
	}
	if p.errorMessage == nil {
		c.record.ErrorMessage = now.errorMessage
	}
	c.record.Version = now.version + 1
	c.record.UpdatedAt = later(now.updatedAt, agl.TimestampOf(time.Now()))
	return c, nil
}

// deleteRollout hides a rollout. What is stored of it stays.
func (g *Gateway) deleteRollout(w http.ResponseWriter, r *http.Request) error {
	id := r.PathValue("id")
	found, err := g.find(r.Context(), id)
	if err == nil {
		_, err = g.revise(r.Context(), found, func(r *rollout) (*change, error) {
			c := &change{record: r.recordV1}
			c.record.DeletedAt = agl.TimestampOf(time.Now())
			if !r.Status.Finished() {
				status := agl.RolloutCancelled
				c.status = &status
			}
			return c, nil
		})
		g.calls.deleted(found.storeID())
	}
	if err != nil && errorStatus(err) != http.StatusNotFound {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// cancelRollout ends a rollout that has not ended; its trainer sees it failed, with the
// message "cancelled". The original server has no such thing.
func (g *Gateway) cancelRollout(w http.ResponseWriter, r *http.Request) error {
	found, err := g.find(r.Context(), r.PathValue("id"))
	if err != nil {
		return err
	}
	found, err = g.revise(r.Context(), found, func(r *rollout) (*change, error) {
		if r.status().state.Terminal() {
			return nil, nil
		}
		state, message := StateFailed, agl.Some("cancelled")
		p := patch{state: &state, errorMessage: &message}
		c, err := p.apply(r)
		if err == nil {
			status := agl.RolloutCancelled
			c.status = &status
		}
		return c, err
	})
	if err != nil {
		return err
	}
	writeJSON(w, http.StatusOK, found.appendJSON(nil))
	return nil
}
