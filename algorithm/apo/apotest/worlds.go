package apotest

import "github.com/agl-go/agl/algorithm/apo"

// carefully is the phrase of worlds with only one.
const carefully = "Think carefully."

func repeat(phrase string, n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = phrase
	}
	return out
}

// only returns the seed of a world with one template.
func only(phrases ...string) []apo.NamedPrompt {
	return []apo.NamedPrompt{{Name: "main", Prompt: Text(phrases...)}}
}

func dist(a, b int) float64 { return float64(max(a-b, b-a)) }

// Worlds returns all worlds. In the last two no edit helps.
func Worlds() []World {
	return []World{Slope(), LocalOptimum(), Checklist(), Length(), TwoTemplates(), NothingHelps(), Flat()}
}

// Slope is best with a phrase four times, and each step towards that helps.
func Slope() World {
	return World{
		Name: "slope", Seed: only(carefully), Phrases: []string{carefully}, Best: 1, Rounds: 7,
		Worth: func(p Prompts) float64 { return 1 - 0.2*dist(p.Count("main", carefully), 4) },
	}
}

// LocalOptimum is best with a phrase five times. The seed has it once, and is
// better than one that has it twice, three times or never.
func LocalOptimum() World {
	worth := []float64{0.35, 0.5, 0.4, 0.45, 0.7, 0.95, 0.6, 0.3, 0.2, 0.1}
	return World{
		Name: "local optimum", Seed: only(carefully), Phrases: []string{carefully}, Best: 0.95, Rounds: 7,
		Worth: func(p Prompts) float64 { return worth[min(p.Count("main", carefully), len(worth)-1)] },
	}
}

// Checklist is best with three of six instructions, once each. The seed has one of those that harm.
func Checklist() World {
	helpful := []string{"Show every step.", "Check the units.", "Round at the end."}
	harmful := []string{"Be brief.", "Guess if unsure.", "Use capitals."}
	return World{
		Name: "checklist", Seed: only(harmful[0]), Phrases: append(append([]string{}, helpful...), harmful...), Best: 0.9, Rounds: 12,
		Worth: func(p Prompts) float64 {
			worth := 0.3
			for _, phrase := range helpful {
				n := p.Count("main", phrase)
				worth += 0.2*float64(min(n, 1)) - 0.1*float64(max(n-1, 0))
			}
			for _, phrase := range harmful {
				worth -= 0.1 * float64(p.Count("main", phrase))
			}
			return worth
		},
	}
}

// Length is best with 18 to 22 words, whatever they say.
func Length() World {
	return World{
		Name: "length", Seed: only(), Phrases: []string{"Think.", "Take your time with this.", "First read the whole question twice."}, Best: 0.9, Rounds: 8,
		Worth: func(p Prompts) float64 {
			const least, most = 18, 22
			n := p.Words("main")
			return 0.9 - 0.1*float64(max(least-n, 0)+max(n-most, 0))
		},
	}
}

// TwoTemplates is best with a phrase more often in one template, and never in the other.
func TwoTemplates() World {
	return World{
		Name: "two templates", Phrases: []string{carefully}, Best: 0.9, Rounds: 8,
		Seed: []apo.NamedPrompt{{Name: "main", Prompt: Text(carefully)}, {Name: "style", Prompt: Text(carefully, carefully)}},
		Worth: func(p Prompts) float64 {
			return 0.9 - 0.2*dist(p.Count("main", carefully), 3) - 0.2*dist(p.Count("style", carefully), 0)
		},
	}
}

// NothingHelps is best as it is, by a small margin.
func NothingHelps() World {
	return World{
		Name: "nothing helps", Seed: only(repeat(carefully, 2)...), Phrases: []string{carefully}, Best: 0.6, Rounds: 7,
		Worth: func(p Prompts) float64 { return 0.6 - 0.02*dist(p.Count("main", carefully), 2) },
	}
}

// Flat earns the same whatever the prompts say.
func Flat() World {
	return World{
		Name: "flat", Seed: only(carefully), Phrases: []string{carefully}, Best: 0.6, Rounds: 7,
		Worth: func(Prompts) float64 { return 0.6 },
	}
}
