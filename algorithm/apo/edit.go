package apo

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"text/template"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// errBudget says that a call was not made because the budget is spent.
var errBudget = errors.New("the budget is spent")

// proposal is one edit under way.
type proposal struct {
	*search

	round, place int // place counts the round's edits from 0
	key          string
	parent       *Candidate
	name         string // of the template
	old          agl.PromptTemplate
	critiqueKind *template.Template
	editKind     *template.Template
	refused      int // replies that could not be used
}

// propose makes the round's edits in parallel. What cannot be made is nil in the
// list; a budget that is spent leaves out the rest.
func (s *search) propose(ctx context.Context, round int) ([]*Candidate, error) {
	edits := make([]*Candidate, s.cfg.BeamWidth*s.cfg.BranchFactor)
	proposals := make([]*proposal, len(edits))
	for i := range edits {
		proposals[i] = s.draw(round, i)
	}
	spent := make([]bool, len(edits))
	err := s.parallel(ctx, len(edits), func(ctx context.Context, i int) (err error) {
		edits[i], err = proposals[i].make(ctx)
		if errors.Is(err, errBudget) {
			spent[i] = true
			return nil
		}
		return err
	})
	for i, p := range proposals {
		s.report.Refused += p.refused
		s.report.OutOfBudget = s.report.OutOfBudget || spent[i]
		if edits[i] == nil && !spent[i] {
			s.report.Abandoned++
		}
	}
	return edits, err
}

// draw decides everything about an edit that is a matter of chance.
func (s *search) draw(round, place int) *proposal {
	r := rand.New(rand.NewPCG(s.cfg.Seed, algorithm.DeriveSeed(s.cfg.Seed, "draw", round, place)))
	p := &proposal{
		search: s, round: round, place: place, key: fmt.Sprintf("round-%d/edit-%d", round, place+1),
		parent: s.beam[place/s.cfg.BranchFactor%len(s.beam)],
		name:   s.templates[r.IntN(len(s.templates))],
	}
	p.old = templateOf(p.parent.Resources, p.name)
	p.critiqueKind = s.critiques[r.IntN(len(s.critiques))]
	p.editKind = s.edits[r.IntN(len(s.edits))]
	return p
}

func templateOf(resources agl.Resources, name string) agl.PromptTemplate {
	r, _ := resources.Get(name)
	t, _ := r.(agl.PromptTemplate)
	return t
}

// make criticises and edits; nil when nothing usable came of it.
func (p *proposal) make(ctx context.Context) (*Candidate, error) {
	critique, err := p.critique(ctx)
	if err != nil || critique == "" {
		return nil, err
	}
	text, err := p.edit(ctx, critique)
	if err != nil || text == "" {
		return nil, err
	}
	resources := append(agl.Resources{}, p.parent.Resources...)
	for i := range resources {
		if resources[i].Name == p.name {
			resources[i].Resource = agl.PromptTemplate{Template: text, Engine: p.old.Engine}
		}
	}
	return &Candidate{
		ResourcesID: fmt.Sprintf("apo-%s-r%d-%d", p.journal.header.Run, p.round, p.place+1), Parent: p.parent.ResourcesID,
		Round: p.round, Edited: p.name, Critique: critique, Prompts: promptsOf(resources), Resources: resources,
	}, nil
}

// critique returns the textual gradient; empty when there is none.
func (p *proposal) critique(ctx context.Context) (string, error) {
	request := ""
	for try := range p.cfg.Attempts {
		key := fmt.Sprintf("%s/critique-%d", p.key, try+1)
		done, ok := p.journal.call(key)
		if !ok {
			if request == "" {
				data, err := p.experiments(ctx)
				if err != nil || len(data.Experiments) == 0 {
					return "", err
				}
				if request, err = render(p.critiqueKind, data); err != nil {
					return "", invalid("CritiquePrompts: %w", err)
				}
			}
			var err error
			done, err = p.ask(ctx, p.cfg.GradientModel, p.cfg.GradientPrice, key, algorithm.DeriveSeed(p.cfg.Seed, "critique", p.round, p.place, try), request)
			if err != nil {
				return "", fmt.Errorf("critique of %s: %w", p.parent.ResourcesID, err)
			}
		}
		if text := clean(done.Text); text != "" {
			return text, nil
		}
	}
	return "", nil
}

// edit returns the new text of the template; empty when there is none that can
// take the old one's place.
func (p *proposal) edit(ctx context.Context, critique string) (string, error) {
	data := EditData{Name: p.name, Prompt: p.old.Template, Critique: critique}
	data.Placeholders, _ = placeholders(p.old)
	for try := range p.cfg.Attempts {
		key := fmt.Sprintf("%s/edit-%d", p.key, try+1)
		done, ok := p.journal.call(key)
		if !ok {
			request, err := render(p.editKind, data)
			if err != nil {
				return "", invalid("EditPrompts: %w", err)
			}
			done, err = p.ask(ctx, p.cfg.EditModel, p.cfg.EditPrice, key, algorithm.DeriveSeed(p.cfg.Seed, "edit", p.round, p.place, try), request)
			if err != nil {
				return "", fmt.Errorf("edit of %s: %w", p.parent.ResourcesID, err)
			}
		}
		text := clean(done.Text)
		if data.Refused = refusal(p.old, text); data.Refused == "" {
			return text, nil
		}
		p.refused++
		p.cfg.Logger.DebugContext(ctx, "edit refused", "parent", p.parent.ResourcesID, "template", p.name, "reason", data.Refused)
	}
	return "", nil
}

// ask makes a model call, if the budget has room, and journals it.
func (p *proposal) ask(ctx context.Context, model Model, price Price, key string, seed uint64, request string) (call, error) {
	if !p.cfg.Budget.within(p.journal.spent(math.MaxInt)) {
		return call{}, errBudget
	}
	reply, err := model.Complete(ctx, Request{
		Messages: []Message{{Role: "user", Content: request}}, Temperature: p.cfg.Temperature.Or(1), Seed: seed,
	})
	if err != nil {
		return call{}, err
	}
	done := call{Reply: reply, Round: p.round, Price: price}
	return done, p.journal.put(entry{Key: key, Call: &done})
}

// experiments runs the parent on training tasks. Rollouts without a score say
// nothing about the prompt and are left out.
func (p *proposal) experiments(ctx context.Context) (CritiqueData, error) {
	data := CritiqueData{Name: p.name, Prompt: p.old.Template}
	data.Placeholders, _ = placeholders(p.old)
	for _, other := range p.parent.Prompts {
		if other.Name != p.name {
			data.Others = append(data.Others, other)
		}
	}
	b := batch{
		key: p.key + "/" + stageGradient, stage: stageGradient, place: []int{p.round, p.place}, candidate: p.parent,
		mode: agl.ModeTrain, data: p.in.Train, tasks: p.gradientTasks(), samples: 1,
	}
	// A batch in the journal of which no critique was made has to be run again,
	// unless there was nothing to say of it.
	if t, ok := p.journal.trial(b.key); ok && !meanScore(t.Scores).Valid {
		return data, nil
	}
	episodes, scores, err := p.run(ctx, b)
	if err != nil {
		return data, err
	}
	for i := range episodes {
		if score := scores.Scores[i]; score.Valid {
			data.Experiments = append(data.Experiments, experiment(&episodes[i], len(data.Experiments)+1, score.V, p.cfg.ExperimentBytes))
		}
	}
	return data, nil
}

// gradientTasks goes through the reshuffled training dataset, edit by edit.
func (p *proposal) gradientTasks() []int {
	n := p.in.Train.Len()
	size := min(p.cfg.GradientBatch, n)
	order := algorithm.NewShuffle(n, algorithm.DeriveSeed(p.cfg.Seed, stageGradient))
	first := ((p.round-1)*p.cfg.BeamWidth*p.cfg.BranchFactor + p.place) * size
	tasks := make([]int, size)
	for i := range tasks {
		tasks[i] = order.At(first + i)
	}
	return tasks
}
