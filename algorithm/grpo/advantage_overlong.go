package grpo

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/adapter"
)

// Overlong lowers the reward of long replies, before they are so long that they are cut off: DAPO's soft overlong
// punishment (arXiv:2503.14476, §3.4, eq. 13). A reply of y tokens gets
//
//	0                              if y ≤ Limit − Margin
//	Penalty·(Limit − Margin − y)/Margin   up to Limit
//	−Penalty                       above
//
// A rollout gets the penalty of its longest reply. With CreditTurn, each call gets its own. Rewards and pass rates in reports do
// not include it.
type Overlong struct {
	// Limit is the length from which all of Penalty applies, in tokens; zero turns it off.
	Limit int
	// Margin is the number of tokens before Limit in which the penalty grows, from 1 to Limit. Required with a Limit.
	Margin int
	// Penalty is in units of the reward; zero means 1.
	Penalty float64
}

func (o Overlong) validate() error {
	switch {
	case o == Overlong{}:
		return nil
	case o.Limit < 1:
		return agl.Errorf(agl.CodeInvalid, "Overlong.Limit is %d, must be at least 1", o.Limit)
	case o.Margin < 1 || o.Margin > o.Limit:
		return agl.Errorf(agl.CodeInvalid, "Overlong.Margin is %d, must be from 1 to Limit (%d)", o.Margin, o.Limit)
	case !(o.Penalty > 0):
		return agl.Errorf(agl.CodeInvalid, "Overlong.Penalty is %v, must be above 0", o.Penalty)
	}
	return nil
}

// of returns the penalty of a reply of so many tokens, at most 0.
func (o Overlong) of(tokens int) float64 {
	if o.Limit == 0 {
		return 0
	}
	over := float64(tokens-(o.Limit-o.Margin)) / float64(o.Margin)
	return -o.Penalty * min(max(over, 0), 1)
}

// worst returns the penalty of the longest reply.
func (o Overlong) worst(sequences []adapter.Trajectory) float64 {
	worst := 0.0
	for _, t := range sequences {
		for _, reply := range t.Replies {
			worst = min(worst, o.of(reply.End-reply.Start))
		}
	}
	return worst
}

// punish adds penalties to the rewards-to-go of turns: to each its own, and the discounted ones of later turns.
func (o Overlong) punish(turns []turn, sequences []adapter.Trajectory, discount float64) {
	togo := 0.0
	for t := len(turns) - 1; t >= 0; t-- {
		reply := sequences[turns[t].sequence].Replies[turns[t].reply]
		togo = o.of(reply.End-reply.Start) + discount*togo
		turns[t].togo += togo
	}
}
