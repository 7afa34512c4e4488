package runfile

import (
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker/chat"
)

func engine(to **Engine) yamlfile.Value {
	return yamlfile.Via(func(e *Engine) yamlfile.Value {
		return yamlfile.OneOf(
			yamlfile.Key("policy", "A small language model that is a part of agl and runs on the CPU, with one token per character.", embedded(&e.Policy)),
			yamlfile.Key("tinker", "An engine elsewhere that speaks the Tinker protocol over HTTP.", remote(&e.Tinker)),
		)
	}, func(e Engine) { *to = &e })
}

func embedded(to **Policy) yamlfile.Value {
	key, integer, from, upTo := yamlfile.Key, yamlfile.Integer[int], yamlfile.Min, yamlfile.Max
	return yamlfile.Via(func(p *Policy) yamlfile.Value {
		c := &p.Config
		return yamlfile.Mapping(
			key("context", "The longest conversation in tokens.", integer(&c.Context, from(2), upTo(1<<12))).Default(48),
			key("layers", "Number of transformer blocks.", integer(&c.Layers, from(1), upTo(64))).Default(2),
			key("dim", "Width of the residual stream, a multiple of 16·heads.", integer(&c.Dim, from(16), upTo(1<<12))).Default(64),
			key("heads", "Number of attention heads.", integer(&c.Heads, from(1), upTo(64))).Default(4),
			key("ff", "Width of the feed-forward layer, a multiple of 16.", integer(&c.FF, from(16), upTo(1<<14))).Default(256),
			key("characters", "The vocabulary, one token per character.", yamlfile.Text(&p.Characters)).Default(chat.DefaultAlphabet),
			key("warm_start", "Supervised training on conversations that comes first.", warmStart(&p.WarmStart)),
		).Check(func(s *yamlfile.Scope) {
			if s.Clean() {
				checkPolicy(s, p)
			}
		})
	}, func(p Policy) { *to = &p })
}

// checkPolicy lets the engine judge its settings.
func checkPolicy(s *yamlfile.Scope, p *Policy) {
	characters, err := chat.NewCharacters(p.Characters)
	if err != nil {
		s.FailAt("characters", err)
		return
	}
	c := p.Config
	c.Vocab = characters.Vocab()
	_, err = policy.NewService(c)
	s.Fail(err)
}

func warmStart(to **WarmStart) yamlfile.Value {
	return yamlfile.Via(func(w *WarmStart) yamlfile.Value {
		key := yamlfile.Key
		return yamlfile.Mapping(append([]yamlfile.Field{
			key("file", `A JSON Lines file of {"messages": [{"role": …, "content": …}, …]}; the model learns the assistant's messages.`, yamlfile.File(&w.Path)).Required(),
			key("steps", "Number of optimizer steps.", yamlfile.Integer(&w.Steps, yamlfile.Min(1))).Default(1200),
			key("batch", "Conversations in a step.", yamlfile.Integer(&w.Batch, yamlfile.Min(1))).Default(32),
		}, rate(&w.Schedule, "0.003, falling to 0, after a warm-up of a tenth of the steps, at most 100, when neither is here.")...)...).Check(oneRate)
	}, func(w WarmStart) { *to = &w })
}

// rate declares the learning rate of each step, in two ways.
func rate(to *algorithm.Schedule, otherwise string) []yamlfile.Field {
	key := yamlfile.Key
	constant := func(rate float64) { *to = algorithm.Schedule{Peak: rate, Floor: rate} }
	return []yamlfile.Field{
		key("learning_rate", "The learning rate of all steps. "+otherwise, yamlfile.Via(func(v *float64) yamlfile.Value { return yamlfile.Number(v, yamlfile.Above(0)) }, constant)),
		key("schedule", "A learning rate that rises, stays and falls, instead of learning_rate.", yamlfile.Mapping(
			key("peak", "The highest rate.", yamlfile.Number(&to.Peak, yamlfile.Above(0))).Required(),
			key("warmup", "Steps in which it rises from 0 in a line.", yamlfile.Integer(&to.Warmup)).Default(0),
			key("hold", "Steps for which it then stays.", yamlfile.Integer(&to.Hold)).Default(0),
			key("floor", "To which it falls: the rate of the step that would follow the last.", yamlfile.Number(&to.Floor)).Default(0),
			key("decay", "How it falls: along a half cosine, or in a line.", yamlfile.Words(&to.Decay, algorithm.Decays()...)).Default(string(algorithm.Cosine)),
		).Check(func(s *yamlfile.Scope) {
			if s.Clean() {
				s.FailAt("", to.Validate())
			}
		})),
	}
}

// oneRate refuses a rate that is given in both ways.
func oneRate(s *yamlfile.Scope) {
	if s.Given("learning_rate") && s.Given("schedule") {
		s.Failf("schedule", "given together with learning_rate, must be one of them")
	}
}
