// Package apotest has tasks for prompt tuning whose best prompts are known: agents whose rewards are a function of their
// prompts, plus noise, and models that make the edits that lead to the best prompts. It is for tests and benchmarks, also of
// algorithms other than apo.
//
// A prompt is a head, any number of phrases and a tail. The models find it in a request by its head and tail.
package apotest

import (
	"context"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/internal/rawjson"
)

// World is a task whose best prompts are known.
type World struct {
	Name string
	// Seed has the prompts with which a search begins.
	Seed []apo.NamedPrompt
	// Phrases are what edits add and remove.
	Phrases []string
	// Worth returns the expected reward of prompts.
	Worth func(p Prompts) float64
	// Best is the highest worth of any prompts; that of the seed if no edit helps.
	Best float64
	// Rounds is the number of rounds in which a search with three parents and three edits of each should find the best
	// prompts.
	Rounds int
}

// Prompts maps the name of each template of a bundle to its text.
type Prompts map[string]string

// Count is how often a prompt says a phrase.
func (p Prompts) Count(name, phrase string) int { return strings.Count(p[name], phrase) }

// Words is the number of words of a prompt.
func (p Prompts) Words(name string) int { return len(strings.Fields(p[name])) }

// PromptsOf returns the prompts of an apo.Report by template.
func PromptsOf(list []apo.NamedPrompt) Prompts {
	out := Prompts{}
	for _, p := range list {
		out[p.Name] = p.Prompt
	}
	return out
}

const (
	head = "Question: {question}"
	tail = "Give the answer."
	// noise is the width of the interval from which rewards are drawn.
	noise = 0.4
)

// Text is a prompt with the phrases in it.
func Text(phrases ...string) string { return head + " " + strings.Join(append(phrases, tail), " ") }

// Resources returns the initial resources of a search, with a model that no search may change.
func (w World) Resources() agl.Resources {
	out := agl.Resources{{Name: "model", Resource: agl.LLM{Endpoint: "http://localhost/v1", Model: "m"}}}
	for _, p := range w.Seed {
		out = append(out, agl.NamedResource{Name: p.Name, Resource: agl.PromptTemplate{Template: p.Prompt, Engine: agl.PromptFString}})
	}
	return out
}

// Improvable reports whether some prompts are worth more than the seed.
func (w World) Improvable() bool { return !w.Optimal(w.Seed) }

// Gain returns the worth of prompts minus that of the seed.
func (w World) Gain(prompts []apo.NamedPrompt) float64 {
	return w.Worth(PromptsOf(prompts)) - w.Worth(PromptsOf(w.Seed))
}

// Optimal reports whether no prompts are worth more.
func (w World) Optimal(prompts []apo.NamedPrompt) bool {
	const rounding = 1e-9
	return w.Worth(PromptsOf(prompts)) > w.Best-rounding
}

// Agent is an agl.AgentFunc. Its reward is the worth of its prompts plus noise, which is
// a function of the prompts and the rollout's seed.
func (w World) Agent(_ context.Context, t agl.Task) (agl.Result, error) {
	prompts := Prompts{}
	for _, r := range t.Resources {
		if p, ok := r.Resource.(agl.PromptTemplate); ok {
			prompts[r.Name] = p.Template
		}
	}
	var meta struct {
		Seed uint64 `json:"seed"`
	}
	if err := rawjson.Unmarshal(t.Rollout.Metadata, &meta); err != nil {
		return agl.Result{}, fmt.Errorf("read metadata: %w", err)
	}
	h := fnv.New64a()
	for _, p := range w.Seed {
		fmt.Fprint(h, prompts[p.Name], "\x00")
	}
	return agl.RewardResult(w.Reward(prompts, rand.NewPCG(meta.Seed, h.Sum64()))), nil
}

// Reward draws a reward for prompts.
func (w World) Reward(prompts Prompts, source rand.Source) float64 {
	return w.Worth(prompts) + noise*(rand.New(source).Float64()-0.5)
}

// Tasks are n tasks that differ.
func Tasks(n int) agl.Tasks {
	out := make(agl.Tasks, n)
	for i := range out {
		out[i] = jsontext.Value(fmt.Sprintf(`{"question":"number %d"}`, i+1))
	}
	return out
}

// Config returns the settings of a search, with the built-in requests of apo.
func (w World) Config(seed uint64) apo.Config {
	return apo.Config{
		RunConfig:     algorithm.RunConfig{Seed: seed},
		GradientModel: apo.ModelFunc(w.Criticise), EditModel: apo.ModelFunc(Edit),
		BeamWidth: 3, BranchFactor: 3, Rounds: w.Rounds, GradientBatch: 1, ValBatch: 10,
	}
}

// Input returns the input of a search.
func (w World) Input(store agl.Store) agl.AlgorithmInput {
	const train, val = 12, 24
	return agl.AlgorithmInput{Store: store, Train: Tasks(train), Val: Tasks(val), InitialResources: w.Resources()}
}
