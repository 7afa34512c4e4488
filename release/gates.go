package release

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/agl-go/agl"
)

// Gates are the conditions for promoting a candidate or rolling it back.
type Gates struct {
	// Alpha is the greatest probability, in (0, 0.5], of ever promoting a candidate that is no better, or rolling
	// back one that is no worse. Default 0.05. The guards share another Alpha.
	Alpha float64 `json:"alpha"`
	// MinGain is how much greater the candidate's mean reward must be. Default 0.
	MinGain float64 `json:"min_gain"`
	// MinSessions is the number of candidate sessions that a promotion needs; a rollback needs a fifth of them.
	// Default 50.
	MinSessions int `json:"min_sessions"`
	// MaxSessions is the number of sessions, of both arms, after which a release without enough evidence is rolled
	// back. Default 20,000.
	MaxSessions int `json:"max_sessions"`
	// Guards are metrics that must not get worse. Nil is those of [Defaults]; JSON leaves it out, since [] is none.
	Guards []Guard `json:"guards,omitzero"`
}

// Guard bounds how much greater the candidate's mean of a metric may be.
type Guard struct {
	Metric string `json:"metric"` // such as MetricErrors
	// Tolerance is the allowed difference, in the metric's unit; with Relative, as a share of the stable mean.
	Tolerance float64 `json:"tolerance"`
	Relative  bool    `json:"relative,omitzero"`
}

// The metrics that every session has.
const (
	MetricErrors      = "errors"            // share of its model calls that failed
	MetricFailedTools = "failed_tool_calls" // share of its tool calls that failed
	MetricRefusals    = "refusals"          // 1 if a reply was a refusal, else 0
	MetricTokens      = "tokens"            // of all its replies
	MetricLatency     = "latency"           // seconds of the slowest call
)

// MetricKL is how much likelier a session's tokens were under the version that answered than under the stable one:
// the mean of log p − log q, in nats a token. It estimates the Kullback-Leibler divergence of the two versions. For
// sessions of the stable version it is 0, apart from differences between the engines that sample and that compute. It
// is measured if a [Watcher] has a KL.
const MetricKL = "kl"

// Defaults returns the gates of a release that sets none.
func Defaults() Gates { return Gates{}.withDefaults() }

func (g Gates) withDefaults() Gates {
	g.Alpha = cmp.Or(g.Alpha, 0.05)
	g.MinSessions = cmp.Or(g.MinSessions, 50)
	g.MaxSessions = cmp.Or(g.MaxSessions, 20_000)
	if g.Guards == nil {
		g.Guards = []Guard{
			{Metric: MetricErrors, Tolerance: 0.05},
			{Metric: MetricFailedTools, Tolerance: 0.05},
			{Metric: MetricRefusals, Tolerance: 0.05},
			{Metric: MetricTokens, Tolerance: 0.5, Relative: true},
			{Metric: MetricLatency, Tolerance: 1, Relative: true},
		}
	}
	return g
}

// Check returns an error of CodeInvalid for the first field that is out of range.
func (g *Gates) Check() error {
	invalid := func(field string, got any, allowed string) error {
		return agl.Errorf(agl.CodeInvalid, "gates.%s: got %v, must be %s", field, got, allowed)
	}
	switch {
	case !(g.Alpha > 0 && g.Alpha <= 0.5):
		return invalid("alpha", g.Alpha, "greater than 0 and at most 0.5")
	case !(g.MinGain >= 0) || math.IsInf(g.MinGain, 0):
		return invalid("min_gain", g.MinGain, "0 or more")
	case g.MinSessions < 2:
		return invalid("min_sessions", g.MinSessions, "at least 2")
	case g.MaxSessions/2 < g.MinSessions:
		return invalid("max_sessions", g.MaxSessions, fmt.Sprintf("at least twice min_sessions, which is %d", g.MinSessions))
	}
	seen := map[string]bool{}
	for i, one := range g.Guards {
		at := fmt.Sprintf("guards[%d].", i)
		switch {
		case one.Metric == "":
			return invalid(at+"metric", `""`, "the name of a metric")
		case seen[one.Metric]:
			return invalid(at+"metric", one.Metric, "named once")
		case !(one.Tolerance >= 0) || math.IsInf(one.Tolerance, 0):
			return invalid(at+"tolerance", one.Tolerance, "0 or more")
		}
		seen[one.Metric] = true
	}
	return nil
}

// Observation is a session that has ended.
type Observation struct {
	Arm    Arm
	Share  float64  // the candidate's probability when the session began, in (0, 1)
	Reward *float64 // nil if the session has none
	// Metrics are the values by metric. A guard ignores sessions without its metric.
	Metrics map[string]float64
}

// Evidence sums up the sessions of a release.
type Evidence struct {
	Sessions [2]int64 `json:"sessions"` // that have ended: stable, candidate
	Reward   Sequence `json:"reward"`
	// Guards are the sequences by metric. The tolerance is added to the outcomes of the stable version, so a
	// difference above 0 is more than allowed.
	Guards map[string]Sequence `json:"guards"`
}

// Add counts a session.
func (e *Evidence) Add(g Gates, o Observation) {
	e.Sessions[o.Arm]++
	if o.Reward != nil {
		e.Reward.Add(o.Arm, o.Share, *o.Reward)
	}
	for _, guard := range g.Guards {
		value, ok := o.Metrics[guard.Metric]
		if !ok {
			continue
		}
		if o.Arm == Stable {
			if guard.Relative {
				value *= 1 + guard.Tolerance
			} else {
				value += guard.Tolerance
			}
		}
		if e.Guards == nil {
			e.Guards = map[string]Sequence{}
		}
		s := e.Guards[guard.Metric]
		s.Add(o.Arm, o.Share, value)
		e.Guards[guard.Metric] = s
	}
}

// Action is what a decision does.
type Action string

// The actions.
const (
	Wait     Action = "wait"
	Promote  Action = "promote"
	Rollback Action = "rollback"
)

// Verdict is an action with its reason: a sentence with the numbers that matter.
type Verdict struct {
	Action Action `json:"action"`
	Reason string `json:"reason"`
}

// tightest is the number of sessions after which the intervals are tightest.
const tightest = 1000

// Bounds returns the bounds of the difference of rewards, and of each guard's difference.
func (g *Gates) Bounds(e *Evidence) (reward [2]float64, guards map[string][2]float64) {
	reward[0], reward[1] = e.Reward.Interval(g.Alpha, tightest)
	guards = map[string][2]float64{}
	for _, guard := range g.Guards {
		s := e.Guards[guard.Metric]
		// One-sided: the other bound is not tested.
		low, high := s.Interval(min(2*g.Alpha/float64(len(g.Guards)), 0.5), tightest)
		guards[guard.Metric] = [2]float64{low, high}
	}
	return reward, guards
}

// Decide returns what the evidence calls for. It promotes a candidate once there is evidence that its reward is
// greater and that no guarded metric is worse than tolerated; a guard for which no session has a value is ignored.
func (g *Gates) Decide(e *Evidence) Verdict {
	reward, guards := g.Bounds(e)
	sessions := e.Sessions[Stable] + e.Sessions[Candidate]
	if e.Sessions[Candidate] >= int64(max(g.MinSessions/5, 2)) {
		for _, guard := range g.Guards {
			if s := e.Guards[guard.Metric]; guards[guard.Metric][0] > 0 {
				return Verdict{Rollback, fmt.Sprintf("%s: %s of the candidate against %s of the stable version, where %s more is allowed",
					guard.Metric, number(s.Arms[Candidate].Mean), number(guard.StableMean(&s)), guard.allowed())}
			}
		}
		if reward[1] < 0 {
			return Verdict{Rollback, "the reward is worse: the difference is " + between(reward)}
		}
	}
	better := reward[0] > g.MinGain && e.Sessions[Candidate] >= int64(g.MinSessions)
	unsure := slices.IndexFunc(g.Guards, func(guard Guard) bool {
		s := e.Guards[guard.Metric]
		return s.Arms[Stable].N+s.Arms[Candidate].N > 0 && !(guards[guard.Metric][1] < 0)
	})
	switch {
	case better && unsure < 0:
		return Verdict{Promote, fmt.Sprintf("the reward is better: the difference is %s after %d sessions of the candidate", between(reward), e.Sessions[Candidate])}
	case sessions >= int64(g.MaxSessions):
		return Verdict{Rollback, fmt.Sprintf("no evidence for the candidate after %d sessions: the difference of the reward is %s", sessions, between(reward))}
	case better:
		return Verdict{Wait, "the reward is better, but " + g.Guards[unsure].Metric + " may be worse than allowed"}
	default:
		return Verdict{Wait, fmt.Sprintf("%d sessions of the candidate; the difference of the reward is %s", e.Sessions[Candidate], between(reward))}
	}
}

// StableMean returns the mean of the stable version without the tolerance that [Evidence.Add] adds to it.
func (g *Guard) StableMean(s *Sequence) float64 {
	mean := s.Arms[Stable].Mean
	if g.Relative {
		return mean / (1 + g.Tolerance)
	}
	return mean - g.Tolerance
}

func (g *Guard) allowed() string {
	if g.Relative {
		return number(100*g.Tolerance) + " %"
	}
	return number(g.Tolerance)
}

// between says where a difference is.
func between(bounds [2]float64) string {
	if math.IsInf(bounds[0], 0) {
		return "unknown, as both versions need rewards of two sessions at least"
	}
	return "between " + number(bounds[0]) + " and " + number(bounds[1])
}

func number(x float64) string { return fmt.Sprintf("%.3g", x) }
