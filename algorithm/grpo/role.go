package grpo

import (
	"cmp"
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
	"github.com/agl-go/agl/algorithm"
)

// of returns the settings of a role.
func (c Config) of(r algorithm.Role) Config {
	c.Model, c.InitialWeights, c.Publisher, c.ModelName = r.Model, r.InitialWeights, r.Publisher, r.ModelName
	if r.Schedule.Peak != 0 {
		c.Schedule = r.Schedule
	}
	return c
}

var roleName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func (c Config) validateRoles() error {
	for i, r := range c.Roles {
		field := fmt.Sprintf("Roles[%d]", i)
		before := c.Roles[:i]
		switch {
		case !roleName.MatchString(r.Name):
			return invalid("%s.Name is %q, must be letters, digits, _ and -", field, r.Name)
		case slices.ContainsFunc(before, func(b algorithm.Role) bool { return b.Name == r.Name }):
			return invalid("%s.Name is %q, the name of another role", field, r.Name)
		case r.ModelName == "":
			return invalid("%s.ModelName is empty; the calls of a role are those that ask for its model", field)
		case slices.ContainsFunc(before, func(b algorithm.Role) bool { return b.ModelName == r.ModelName }):
			return invalid("%s.ModelName is %q, the model of another role", field, r.ModelName)
		case len(c.Roles) > 1 && r.Publisher == nil:
			return invalid("%s.Publisher is nil; with several roles each needs one, so that calls carry the version of its weights", field)
		}
		if err := r.Schedule.Validate(); r.Schedule.Peak != 0 && err != nil {
			return invalid("%s: %w", field, err)
		}
	}
	if len(c.Roles) > 1 && c.KL.Reference != "" {
		return invalid("KL.Reference is %q with %d Roles; the reference of each is its own InitialWeights", c.KL.Reference, len(c.Roles))
	}
	return nil
}

// rolesIdentity is what a checkpoint must agree on besides what it would without roles.
func (c Config) rolesIdentity() string {
	all := make([]string, len(c.Roles))
	for i, r := range c.Roles {
		all[i] = fmt.Sprintf("%s model=%q %s lora_rank=%d seed=%d reward=%q schedule=%s",
			r.Name, r.ModelName, r.Model.BaseModel, r.Model.LoRARank, r.Model.Seed, r.Reward, r.Schedule)
	}
	return strings.Join(all, "; ")
}

// trainee is a role during a run. Without Config.Roles there is one, without a name.
type trainee struct {
	name    string
	cfg     Config
	calls   *algorithm.PolicyCalls
	reward  string // the dimension; empty is the primary one
	context int    // of the model, in tokens; 0 is unknown
	version func(resourcesID string) string
	updater updater
}

// traineesOf returns the roles of a session, the first first.
func traineesOf(c Config, s *algorithm.Session) []*trainee {
	first := &trainee{cfg: c, calls: s.Calls, version: func(id string) string { return id }, updater: updater{cfg: c, client: s.Model.TrainingClient}}
	all := []*trainee{first}
	for _, r := range s.Roles {
		all = append(all, &trainee{calls: r.Calls, version: r.Version, updater: updater{client: r.Client}})
	}
	for i, r := range c.Roles {
		t := all[i]
		t.name, t.reward, t.cfg = r.Name, r.Reward, c.of(r)
		t.updater.cfg = t.cfg
	}
	return all
}

// open asks the engine for the model's sizes, and opens the reference of KL. The caller unloads it, even after an error.
func (t *trainee) open(ctx context.Context) (err error) {
	if t.updater.reference, err = openReference(ctx, t.cfg); err != nil {
		return err
	}
	info, err := t.updater.client.Info(ctx)
	if err != nil {
		return fmt.Errorf("describe model: %w", err)
	}
	t.updater.vocab, t.context = info.Spec.Vocab, info.Spec.Context
	return nil
}

// failed names the role in an error.
func (t *trainee) failed(err error) error {
	if t.name == "" {
		return err
	}
	return fmt.Errorf("role %s: %w", t.name, err)
}

// ownerOf returns the role that a version is of.
func ownerOf(roles []*trainee, version string) *trainee {
	for _, t := range roles[1:] {
		if strings.HasSuffix(version, t.version("")) {
			return t
		}
	}
	return roles[0]
}

// of returns the rollouts of a group to a role.
func (g taskGroup) of(role int) taskGroup {
	if role == 0 {
		return g
	}
	seen := make(taskGroup, len(g))
	for i, s := range g {
		seen[i] = s.peers[role-1]
	}
	return seen
}

// finalDimension is a dimension of the final reward, and the names of all that it has.
func finalDimension(spans []agl.Span, name string) (value agl.Null[float64], all []string, err error) {
	rewards, err := adapter.FinalRewards(spans)
	for _, r := range rewards {
		all = append(all, r.Name)
	}
	return dimensionOf(rewards, name), all, err
}

// dimensionOf returns a dimension of a reward; an empty name is the primary one.
func dimensionOf(rewards []agl.Reward, name string) agl.Null[float64] {
	for _, r := range rewards {
		if cmp.Or(name, r.Name) == r.Name {
			return agl.Some(r.Value)
		}
	}
	return agl.Null[float64]{}
}
