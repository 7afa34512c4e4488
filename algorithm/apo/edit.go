package apo

import (
	"context"
	"fmt"
	"math/rand/v2"
	"text/template"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// editor makes edits of candidates.
type editor struct {
	evaluator

	admission        *admission
	train            agl.Dataset
	critiques, edits []*template.Template
}

// proposal is one edit in progress.
type proposal struct {
	*editor

	round, place int // place counts the round's edits from 0
	key          string
	parent       *Candidate
	name         string // of the template
	old          agl.PromptTemplate
	critiqueKind *template.Template
	editKind     *template.Template
	refused      int      // replies that could not be used
	sessions     []string // that the critique is shown, in a live run
}

// draw makes every random choice about an edit of a member of the beam.
func (e *editor) draw(beam []*Candidate, round, place int) *proposal {
	r := rand.New(rand.NewPCG(e.cfg.Seed, algorithm.DeriveSeed(e.cfg.Seed, "draw", round, place)))
	parent := beam[place/e.cfg.BranchFactor%len(beam)]
	p := &proposal{
		editor: e, round: round, place: place, key: fmt.Sprintf("round-%d/edit-%d", round, place+1),
		parent: parent, name: parent.Prompts[r.IntN(len(parent.Prompts))].Name,
	}
	p.old = templateOf(p.parent.Resources, p.name)
	p.critiqueKind = e.critiques[r.IntN(len(e.critiques))]
	p.editKind = e.edits[r.IntN(len(e.edits))]
	return p
}

func templateOf(resources agl.Resources, name string) agl.PromptTemplate {
	r, _ := resources.Get(name)
	t, _ := r.(agl.PromptTemplate)
	return t
}

// make critiques and edits the parent. The result is nil if the models returned nothing usable.
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
		ResourcesID: fmt.Sprintf("apo-%s-r%d-%d", p.runID(), p.round, p.place+1), Parent: p.parent.ResourcesID,
		Round: p.round, Edited: p.name, Critique: critique, Prompts: promptsOf(resources), Resources: resources,
	}, nil
}

// critique returns the textual gradient; empty if there is none.
func (p *proposal) critique(ctx context.Context) (string, error) {
	request := ""
	for attempt := range p.cfg.Attempts {
		key := fmt.Sprintf("%s/critique-%d", p.key, attempt+1)
		done := p.journal.get(key).Call
		if done == nil {
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
			done, err = p.ask(ctx, p.cfg.GradientModel, p.cfg.GradientPrice, key, algorithm.DeriveSeed(p.cfg.Seed, "critique", p.round, p.place, attempt), request)
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

// edit returns the new text of the template; empty if no reply can replace the old one.
func (p *proposal) edit(ctx context.Context, critique string) (string, error) {
	data := EditData{Name: p.name, Prompt: p.old.Template, Critique: critique}
	data.Placeholders, _ = placeholders(p.old)
	for attempt := range p.cfg.Attempts {
		key := fmt.Sprintf("%s/edit-%d", p.key, attempt+1)
		done := p.journal.get(key).Call
		if done == nil {
			request, err := render(p.editKind, data)
			if err != nil {
				return "", invalid("EditPrompts: %w", err)
			}
			done, err = p.ask(ctx, p.cfg.EditModel, p.cfg.EditPrice, key, algorithm.DeriveSeed(p.cfg.Seed, "edit", p.round, p.place, attempt), request)
			if err != nil {
				return "", fmt.Errorf("edit of %s: %w", p.parent.ResourcesID, err)
			}
		}
		text := clean(done.Text)
		data.Refused = refusal(p.old, text)
		if done.CutOff {
			data.Refused = "it was cut off at the token limit"
		}
		if data.Refused == "" {
			return text, nil
		}
		p.refused++
		p.cfg.Logger.DebugContext(ctx, "edit refused", "parent", p.parent.ResourcesID, "template", p.name, "reason", data.Refused)
	}
	return "", nil
}

// ask makes a model call and journals it. It returns errBudget if the budget does not cover the call.
func (p *proposal) ask(ctx context.Context, model Model, price Price, key string, seed uint64, request string) (*modelCall, error) {
	if err := p.admission.reserve(ctx); err != nil {
		return nil, err
	}
	reply, err := model.Complete(ctx, Request{
		Messages: []Message{{Role: "user", Content: request}}, Temperature: p.cfg.Temperature.Or(1), Seed: seed,
	})
	if err != nil {
		p.admission.cancel()
		return nil, &modelError{err}
	}
	p.admission.settle(costOf(reply.Usage, price))
	done := &modelCall{Reply: reply, Round: p.round, Price: price}
	return done, p.journal.put(entry{Key: key, Call: done})
}

// modelError is a failure of a model.
type modelError struct{ error }

// Unwrap returns the model's error.
func (e *modelError) Unwrap() error { return e.error }

// experiments runs the parent on training tasks. Rollouts without a score say nothing about the prompt and are left out.
func (p *proposal) experiments(ctx context.Context) (CritiqueData, error) {
	data := CritiqueData{Name: p.name, Prompt: p.old.Template}
	data.Placeholders, _ = placeholders(p.old)
	for _, other := range p.parent.Prompts {
		if other.Name != p.name {
			data.Others = append(data.Others, other)
		}
	}
	if p.cfg.Live != nil {
		return p.experimentsOf(ctx, p.sessions, data)
	}
	e := evaluation{
		key: p.key + "/" + stageGradient, stage: stageGradient, place: []int{p.round, p.place}, candidate: p.parent,
		mode: agl.ModeTrain, data: p.train, tasks: p.gradientTasks(), samples: 1,
	}
	// The journal has scores but no episodes. If no critique followed them, the
	// rollouts must run again, unless none had a score.
	if s := p.journal.get(e.key).Scores; s != nil && !meanScore(s.ByTask).Valid {
		return data, nil
	}
	episodes, scores, err := p.run(ctx, e)
	if err != nil {
		return data, err
	}
	for i := range episodes {
		if score := scores.ByTask[i]; score.Valid {
			data.Experiments = append(data.Experiments, experiment(&episodes[i], len(data.Experiments)+1, score.V, p.cfg.ExperimentBytes))
		}
	}
	return data, nil
}

// gradientTasks returns the edit's part of the shuffled training dataset, which the edits go through in order.
func (p *proposal) gradientTasks() []int {
	n := p.train.Len()
	size := min(p.cfg.GradientBatch, n)
	order := algorithm.NewShuffle(n, algorithm.DeriveSeed(p.cfg.Seed, stageGradient))
	first := ((p.round-1)*p.cfg.BeamWidth*p.cfg.BranchFactor + p.place) * size
	tasks := make([]int, size)
	for i := range tasks {
		tasks[i] = order.At(first + i)
	}
	return tasks
}
