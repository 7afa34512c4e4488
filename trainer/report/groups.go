package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
)

// group is rollouts of one task.
type group struct {
	name    string
	members []member
	rewards []float64 // that count
}

// member is a rollout of a group.
type member struct {
	agl.AttemptedRollout

	dropped string // why the run left it or its group out, as grpo.MetadataDropped says
	mask    string // why its reward does not count; empty if it does
	reward  float64
}

// The reasons why a whole group is dropped. All other reasons are those of single rollouts.
var groupReasons = []string{"no_variance", "failed", "stale"} //nolint:gochecknoglobals // a constant

// reasons says what grpo.MetadataDropped means, as the dashboard does.
func reasons() map[string]string {
	return map[string]string{
		"no_variance":      "grpo drew another one instead, because all rewards that count are equal (dynamic_sampling)",
		"failed":           "grpo drew another one instead, because fewer rollouts count than min_viable asks for",
		"stale":            "grpo left it out, because its weights had become too old (max_staleness)",
		"oversampled":      "its group was complete without it",
		"truncated":        "one of its replies was cut off (mask_truncated); its reward counts in its group",
		"withheld":         "the redaction program did not let it pass",
		"crowded":          "the step had enough rollouts of the same user (per_user)",
		"missing_reward":   "it has no reward",
		"malformed_trace":  "its trace cannot be read, or its calls lack what training needs",
		"no_tokens":        "no call was recorded with the tokens of its reply",
		"wrong_version":    "weights that the run has not published answered a call",
		"sampling":         "a call was sampled with settings that change its log-probabilities",
		"context_overflow": "its tokens do not fit the context of the model",
		"evicted":          "its spans were evicted before they were read",
		"timeout":          "it ran out of time",
		"unresponsive":     "its runner went away",
		"cancelled":        "it was cancelled, or did not end in the time of its group (group_timeout)",
		"panic":            "its agent panicked",
		"model_error":      "a call of its model failed",
		"budget":           "it used up what it may spend",
		"setup_error":      "it could not be set up, or not all of its calls were recorded",
	}
}

// inWords says what a reason means.
func inWords(reason string) string {
	return cmp.Or(reasons()[reason], "the run dropped it: "+reason)
}

func memberOf(r *agl.AttemptedRollout) member {
	m := member{AttemptedRollout: *r}
	m.dropped, _ = agl.Attributes(r.Metadata).GetString(grpo.MetadataDropped)
	e := algorithm.NewEpisode(*r)
	var final agl.Null[float64]
	if r.Attempt != nil && r.Attempt.Reward.Valid {
		final = agl.Some(r.Attempt.Reward.V.Value)
	}
	switch failure := e.Failure(); {
	case !r.Status.Finished():
		m.mask = "it has not finished"
	case m.dropped != "" && m.dropped != "truncated" && !slices.Contains(groupReasons, m.dropped):
		m.mask = inWords(m.dropped)
	case failure != "":
		m.mask = inWords(string(failure))
	default:
		var mask algorithm.Mask
		if m.reward, mask = e.Credit(final); mask != "" {
			m.mask = inWords(string(mask))
		}
	}
	return m
}

// grouped puts the rollouts of a step together, by the number of their group or, if none has one, by their task. The number 0 is left
// out of the metadata. A group that was dropped and the one that took its place have the same number.
func grouped(rollouts []agl.AttemptedRollout) []*group {
	numbered := slices.ContainsFunc(rollouts, func(r agl.AttemptedRollout) bool {
		_, there := agl.Attributes(r.Metadata).GetInt("group")
		return there
	})
	byName, again := map[string]*group{}, map[string]int{}
	numbers := map[string]int{} // of tasks, in the order of their first rollouts
	var out []*group
	for i := range rollouts {
		m := memberOf(&rollouts[i])
		number, _ := agl.Attributes(m.Metadata).GetInt("group")
		if index, there := agl.Attributes(m.Metadata).GetInt("index"); !numbered {
			task := string(m.Input)
			if there {
				task = fmt.Sprint(index)
			}
			if _, known := numbers[task]; !known {
				numbers[task] = len(numbers)
			}
			number = int64(numbers[task])
		}
		base := fmt.Sprint(number)
		name := func() string {
			if n := again[base]; n > 0 {
				return fmt.Sprintf("%s-%d", base, n+1)
			}
			return base
		}
		if g := byName[name()]; g != nil && g.other(&m, numbered) {
			again[base]++
		}
		g := byName[name()]
		if g == nil {
			g = &group{name: name()}
			byName[g.name] = g
			out = append(out, g)
		}
		g.members = append(g.members, m)
		if m.mask == "" {
			g.rewards = append(g.rewards, m.reward)
		}
	}
	slices.SortStableFunc(out, func(a, b *group) int { return cmp.Compare(numberOf(a.name), numberOf(b.name)) })
	return out
}

func numberOf(name string) (n int) {
	_, _ = fmt.Sscanf(name, "%d", &n) // grouped has written it
	return n
}

// other reports whether a rollout is of another group of the same number.
func (g *group) other(m *member, numbered bool) bool {
	labels := agl.Attributes(m.Metadata)
	sample, sampled := labels.GetInt("sample")
	index, _ := labels.GetInt("index")
	for i := range g.members {
		known := agl.Attributes(g.members[i].Metadata)
		if first, _ := known.GetInt("index"); i == 0 && numbered && first != index {
			return true
		}
		if have, there := known.GetInt("sample"); sampled && there && have == sample {
			return true
		}
	}
	return false
}

func (g *group) spread() float64 {
	if len(g.rewards) == 0 {
		return 0
	}
	return slices.Max(g.rewards) - slices.Min(g.rewards)
}

func (g *group) mean() float64 {
	sum := 0.0
	for _, r := range g.rewards {
		sum += r
	}
	return sum / float64(len(g.rewards))
}

// uselessReason returns why a policy learns nothing from a group; empty if it does.
func (g *group) uselessReason() string {
	var why []string
	waiting := 0
	for i := range g.members {
		m := &g.members[i]
		if slices.Contains(groupReasons, m.dropped) {
			return inWords(m.dropped)
		}
		if !m.Status.Finished() {
			waiting++
		}
		if m.mask != "" && !slices.Contains(why, m.mask) {
			why = append(why, m.mask)
		}
	}
	others := strings.Join(why, "; ")
	switch {
	case waiting > 0:
		return fmt.Sprintf("%d of its rollouts have not finished", waiting)
	case len(g.rewards) == 0:
		return "no rollout counts: " + others
	case len(g.rewards) == 1 && len(g.members) == 1:
		return "it has one rollout, which has no other to be compared with"
	case len(g.rewards) == 1:
		return "only one rollout counts, the others do not: " + others
	case g.spread() == 0:
		return "all rewards that count are equal"
	}
	return ""
}
