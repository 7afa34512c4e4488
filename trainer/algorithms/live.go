package algorithms

import (
	"context"
	"fmt"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/proxy/extract"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/trainer/keys"
)

// The keys of algorithms that learn from live sessions.

func metadataKey(to *[]yamlfile.Entry[string]) yamlfile.Field {
	return yamlfile.Key("metadata", "Learns only from rollouts whose metadata has these texts.", yamlfile.Map(to, "the name of a member", `.`, yamlfile.Text))
}

// withMetadata returns the filter that metadataKey describes.
func withMetadata(list []yamlfile.Entry[string]) (f agl.CollectFilter) {
	for _, m := range list {
		if f.Metadata == nil {
			f.Metadata = map[string]string{}
		}
		f.Metadata[m.Name] = m.Value
	}
	return f
}

func perUserKey(to *int) yamlfile.Field {
	return yamlfile.Key("per_user", "The most rollouts of one user (`agl.user` in the metadata, X-Agl-User of sessions) that a step learns from; 0 is no limit.", yamlfile.Integer(to)).Default(0)
}

// Redaction is a program that says which sessions may be learned from.
type Redaction struct{ extract.Program }

func redactionKey(dir string, to **Redaction) yamlfile.Field {
	key := yamlfile.Key
	return key("redaction", "A program that reads each session as JSON on its standard input, and writes true if it may be learned from. A session for which it fails is not learned from.",
		yamlfile.Via(func(p *extract.Program) yamlfile.Value {
			return yamlfile.Mapping(
				key("command", "The program and its arguments.", yamlfile.Command(&p.Command)).Required(),
				key("timeout", "How long it may take for a session; then it is killed.", yamlfile.Duration(&p.Timeout)).Default("30s"),
			).Check(func(s *yamlfile.Scope) {
				if p.Dir = dir; s.Clean() {
					s.FailAt("", p.Check())
				}
			})
		}, func(p extract.Program) { *to = &Redaction{p} }))
}

// releaseKeys declares the keys of a release of what was learned: the settings that `agl release
// propose` has, too.
func releaseKeys(p *release.Proposal, more ...yamlfile.Field) yamlfile.Value {
	key, gates := yamlfile.Key, release.Defaults()
	var guards []yamlfile.Entry[float64]
	return yamlfile.Mapping(append(more,
		key("share", "Share of the sessions that get the candidate, up to 0.5.", yamlfile.Number(&p.Share, yamlfile.Above(0), yamlfile.Max(release.MaxShare))).Default(release.DefaultShare),
		key("min_gain", "By how much the mean reward must be greater.", yamlfile.Number(&p.Gates.MinGain, yamlfile.Min(0.0))).Default(0),
		key("min_sessions", "Sessions of the candidate that a promotion needs.", keys.Count(&p.Gates.MinSessions)).Default(gates.MinSessions),
		key("max_sessions", "Sessions after which a candidate without evidence is rolled back.", keys.Count(&p.Gates.MaxSessions)).Default(gates.MaxSessions),
		key("guards", "By how much the mean of a metric may be greater, such as {errors: 0.05}; by default those of `agl release propose`.", yamlfile.Map(&guards, "the name of a metric", `.`, func(to *float64) yamlfile.Value { return yamlfile.Number(to, yamlfile.Min(0.0)) })),
	)...).Check(func(s *yamlfile.Scope) {
		if guards != nil {
			p.Gates.Guards = []release.Guard{} // given but empty: no guards, not the default ones
		}
		for _, g := range guards {
			p.Gates.Guards = append(p.Gates.Guards, release.Guard{Metric: g.Name, Tolerance: g.Value})
		}
		if s.Clean() {
			s.FailAt("", p.Check())
		}
	})
}

// allow asks the redaction program about a rollout.
func (p *Redaction) allow(ctx context.Context, store agl.Store, r agl.AttemptedRollout) (bool, error) {
	if r.Attempt == nil {
		return false, nil
	}
	page, err := store.QuerySpans(ctx, extract.Query(r.RolloutID, r.Attempt.AttemptID))
	if err != nil {
		return false, err
	}
	said, err := extract.Read(&r.Rollout, page.Items)
	if err != nil {
		return false, err
	}
	values, err := p.Run(ctx, &said)
	switch {
	case err != nil:
		return false, err
	case len(values) == 1 && (values[0].Kind() == 't' || values[0].Kind() == 'f'):
		return values[0].Kind() == 't', nil
	}
	return false, fmt.Errorf("the program %s wrote %.200s, must be true or false", p.Command[0], values)
}
