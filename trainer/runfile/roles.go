package runfile

import (
	"cmp"
	"slices"

	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/trainer/keys"
)

func roles(to *[]Role) yamlfile.Value {
	var entries []yamlfile.Entry[Role]
	return yamlfile.Map(&entries, "the name of an agent", `^[A-Za-z0-9_-]+$`, func(r *Role) yamlfile.Value {
		key := yamlfile.Key
		return yamlfile.Mapping(append([]yamlfile.Field{
			key("model", "The model that it asks the proxy for; by default its name.", yamlfile.Text(&r.ModelName)),
			key("reward", "The dimension of the reward that it learns from; by default the primary one.", yamlfile.Text(&r.Reward)),
			key("train", "Trains its weights, or keeps those that the run begins with.", yamlfile.Via(yamlfile.Bool, func(train bool) { r.Frozen = !train })).Default(true),
		}, keys.Rate(&r.Schedule, "By default that of the algorithm.")...)...).Check(keys.OneRate)
	}).Check(func(s *yamlfile.Scope) {
		if s.Clean() && !slices.ContainsFunc(entries, func(e yamlfile.Entry[Role]) bool { return !e.Value.Frozen }) {
			s.Failf("", "none is trained, at least one must be")
		}
		for _, e := range entries {
			e.Value.Name, e.Value.ModelName = e.Name, cmp.Or(e.Value.ModelName, e.Name)
			*to = append(*to, e.Value)
		}
	})
}

// checkRoles checks the agents against the rest of the file.
func (d *draft) checkRoles(s *yamlfile.Scope) {
	f := d.file
	if !s.Given("agents") {
		return
	}
	if f.Algorithm != nil && !f.Algorithm.Needs().Roles {
		s.Failf("agents", "%s does not train several agents, grpo does", f.Algorithm.Name())
	}
	if s.Given("proxy.model") {
		s.Failf("proxy.model", "given together with agents, which name their models themselves")
	}
	trained := slices.DeleteFunc(slices.Clone(f.Roles), func(r Role) bool { return r.Frozen })
	if s.Given("algorithm.grpo.kl.reference") && len(trained) > 1 {
		s.Failf("algorithm.grpo.kl.reference", "given together with several agents that are trained, must be left out: the reference of each is the weights that it begins with")
	}
	for i, r := range f.Roles {
		same := func(other Role) bool { return other.ModelName == r.ModelName }
		switch {
		case slices.ContainsFunc(f.Roles[:i], same):
			s.Failf("agents."+r.Name, "its model is %s, that of another agent, must be one of its own", r.ModelName)
		case f.Proxy != nil && slices.ContainsFunc(f.Proxy.Config.Models, func(m proxy.Model) bool { return m.Name == r.ModelName }):
			s.Failf("agents."+r.Name, "its model is %s, a name in proxy.models, must be another", r.ModelName)
		case r.Frozen && (r.Reward != "" || r.Schedule.Peak != 0):
			s.Failf("agents."+r.Name, "a reward or a learning rate is given with train: false, which uses neither")
		}
	}
}
