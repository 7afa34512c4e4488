package grpo

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agl-go/agl/algorithm"
)

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

// traineesOf returns the roles of a session, in order.
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

// ownerOf returns the role that a version belongs to.
func ownerOf(roles []*trainee, version string) *trainee {
	for _, t := range roles[1:] {
		if strings.HasSuffix(version, t.version("")) {
			return t
		}
	}
	return roles[0]
}

// stalenessOf compares the versions that sampled a role's tokens with its weights in training, of the generation newest.
func stalenessOf(role *trainee, newest int, groups []taskGroup) Staleness {
	var s Staleness
	calls := role.calls
	tokens := 0
	for _, one := range slices.Concat(groups...) {
		if one.mask != "" {
			continue
		}
		for _, t := range one.sequences {
			for _, reply := range t.Replies {
				if generation, known := calls.Generation(reply.Version); known {
					n := reply.End - reply.Start
					tokens += n
					s.Mean += float64(n * (newest - generation))
					s.Max = max(s.Max, newest-generation)
				}
			}
		}
	}
	if tokens > 0 {
		s.Mean /= float64(tokens)
	}
	return s
}
