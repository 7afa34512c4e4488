package apo

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// Report is the result of a search, and the content of report.json.
type Report struct {
	// Run is part of the ids of the search's resources.
	Run string `json:"run"`
	// Best is the candidate to use: the seed unless Improved.
	Best Candidate `json:"best"`
	// Seed is the initial resources.
	Seed Candidate `json:"seed"`
	// Improved is true if the interval of Gain lies above 0. During the search it is false, and Best is the leader so far.
	Improved bool `json:"improved"`
	// Compared is the ResourcesID of the candidate that was compared with the seed in
	// the end; empty during the search, and if nothing better was found.
	Compared string `json:"compared"`
	// Gain is that of Compared over the seed, on fresh rollouts of the validation dataset.
	Gain Difference `json:"gain"`
	// Finished is true after the final comparison.
	Finished bool `json:"finished"`
	// OutOfBudget is true if the budget ended the search.
	OutOfBudget bool    `json:"out_of_budget"`
	Rounds      []Round `json:"rounds"`
	// Live are the rounds of a live run. Then Best is the version that was stable last, and Improved is true unless
	// that is the seed.
	Live []LiveRound `json:"live,omitempty"`
	// Candidates is the whole history, the seed first.
	Candidates []Candidate `json:"candidates"`
	// Refused counts edits whose text could not replace the template. Abandoned counts the edits that were given up: after
	// Config.Attempts refusals or empty critiques, or because none of their rollouts had a score.
	Refused   int `json:"refused"`
	Abandoned int `json:"abandoned"`
	// Rollouts counts all rollouts, Masked those that count in no score, by reason.
	Rollouts int                    `json:"rollouts"`
	Masked   map[algorithm.Mask]int `json:"masked"`
	// Spent is the cost of the model calls, those of earlier processes included.
	Spent Spent `json:"spent"`
}

// Candidate is a bundle of prompts that was evaluated.
type Candidate struct {
	// ResourcesID names the bundle in the store.
	ResourcesID string `json:"resources_id"`
	// Parent is the ResourcesID of the candidate that was edited; empty for the seed.
	Parent string `json:"parent,omitzero"`
	// Round in which it was made, from 1; 0 for the seed.
	Round int `json:"round"`
	// Edited is the name of the template that differs from the parent's.
	Edited string `json:"edited,omitzero"`
	// Critique is what the edit answers.
	Critique string `json:"critique,omitzero"`
	// Prompts are the templates of the bundle.
	Prompts []NamedPrompt `json:"prompts,omitempty"`
	// Resources is the whole bundle.
	Resources agl.Resources `json:"-"`
	// Score is the mean reward on the validation tasks of the last round in which it was compared; null if it has none.
	Score agl.Null[float64] `json:"score"`
	// Gain is that over the parent, on the validation tasks of the round in which it was made; zero for the seed.
	Gain Difference `json:"gain,omitzero"`
	// Validation is the mean reward on the whole validation dataset; null if it never led a round.
	Validation agl.Null[float64] `json:"validation"`
}

// promptBytes is the length of all prompts.
func (c *Candidate) promptBytes() int {
	n := 0
	for _, p := range c.Prompts {
		n += len(p.Prompt)
	}
	return n
}

func promptsOf(resources agl.Resources) []NamedPrompt {
	var out []NamedPrompt
	for _, r := range resources {
		if t, ok := r.Resource.(agl.PromptTemplate); ok {
			out = append(out, NamedPrompt{r.Name, t.Template})
		}
	}
	return out
}

// Round is the report of a round: one line of metrics.jsonl.
type Round struct {
	// Round counts from 1.
	Round int `json:"round"`
	// Candidates is the number of new candidates.
	Candidates int `json:"candidates"`
	// Beam has the ResourcesIDs of the candidates that survive, the leader first.
	Beam []string `json:"beam"`
	// Gain of the leader over the best before, on the whole validation dataset; zero if
	// they are the same, or if the best before was not validated.
	Gain Difference `json:"gain"`
	// Best is the ResourcesID of the best after the round.
	Best string `json:"best"`
	// Spent since the beginning.
	Spent Spent `json:"spent"`
}
