package grpo

import (
	"context"
	"slices"

	"github.com/agl-go/agl/algorithm"
)

// lesson is what a role learns in a step.
type lesson struct {
	role   *trainee
	report *StepReport
	update *update
	groups []taskGroup // so far
}

// lessons are those of all roles in a step.
type lessons struct {
	report     *StepReport
	generation int // of the weights at the beginning
	roles      []*lesson
}

// beginLessons begins a step, with the weights of a generation.
func beginLessons(roles []*trainee, generation int, report *StepReport) lessons {
	all := lessons{report: report, generation: generation}
	for k, role := range roles {
		own := &StepReport{Step: report.Step, Steps: report.Steps, ResourcesID: role.version(report.ResourcesID)}
		if k == 0 {
			own = report
		}
		all.roles = append(all.roles, &lesson{role: role, report: own, update: role.updater.begin(own)})
	}
	return all
}

// stepped reports whether the weights of a role may no longer be those at the beginning of the step.
func (l lessons) stepped() bool {
	return slices.ContainsFunc(l.roles, func(one *lesson) bool { return one.update.stepped })
}

// train trains each role on a part of the step's groups. Once the weights of a role may have changed, it goes on when ctx ends, for
// ten seconds: the step can then be kept, and need not be repeated.
func (l lessons) train(ctx context.Context, groups []taskGroup) error {
	finishing, done := algorithm.Outlast(ctx)
	defer done()
	for k, one := range l.roles {
		role := ctx
		if l.stepped() {
			role = finishing
		}
		seen := make([]taskGroup, len(groups))
		for i, g := range groups {
			seen[i] = g.of(k)
		}
		one.groups = append(one.groups, seen...)
		if err := one.update.train(role, finishing, assemble(one.role.cfg, seen, one.report)); err != nil {
			return one.role.failed(err)
		}
	}
	return nil
}

// end completes the reports. It returns the tokens that all roles have sampled, and their updates.
func (l lessons) end() (tokens, updates int) {
	for k, one := range l.roles {
		one.update.end()
		fresh, replayed := apart(one.groups)
		countSamples(fresh, one.role.cfg.PassReward, one.report)
		if len(replayed) > 0 {
			var counts StepReport
			countSamples(replayed, one.role.cfg.PassReward, &counts)
			one.report.ReplayedReward, one.report.ReplayedTokens = counts.RewardMean, counts.ResponseTokens
		}
		one.report.Staleness = stalenessOf(one.role, l.generation, one.groups)
		tokens, updates = tokens+one.report.ResponseTokens, updates+one.report.Updates
		if k == 0 {
			l.report.Role = one.role.name
			continue
		}
		if l.report.Roles == nil {
			l.report.Roles = map[string]StepReport{}
		}
		l.report.Roles[one.role.name] = *one.report
	}
	return tokens, updates
}

// apart separates the groups that were learned from before from those that are new.
func apart(groups []taskGroup) (fresh, replayed []taskGroup) {
	for _, g := range groups {
		if len(g) > 0 && g[0].again {
			replayed = append(replayed, g)
		} else {
			fresh = append(fresh, g)
		}
	}
	return fresh, replayed
}
