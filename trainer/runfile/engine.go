package runfile

import (
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/trainer/engine"
	"github.com/agl-go/agl/trainer/keys"
)

func engineKeys(to **Engine) yamlfile.Value {
	return yamlfile.Via(func(e *Engine) yamlfile.Value {
		return yamlfile.OneOf(
			yamlfile.Key("policy", "A small language model that is part of agl and runs on the CPU, with one token per character.", embedded(&e.Policy)),
			yamlfile.Key("tinker", "A remote engine that speaks the Tinker protocol over HTTP.", remote(&e.Tinker)),
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
			key("warm_start", "Supervised training on conversations, before the algorithm.", warmStart(&p.WarmStart)),
		).Check(func(s *yamlfile.Scope) {
			if s.Clean() {
				checkPolicy(s, p)
			}
		})
	}, func(p Policy) { *to = &p })
}

// checkPolicy lets the engine check its settings.
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

func warmStart(to **engine.WarmStart) yamlfile.Value {
	return yamlfile.Via(func(w *engine.WarmStart) yamlfile.Value {
		key := yamlfile.Key
		return yamlfile.Mapping(append([]yamlfile.Field{
			key("file", `A JSON Lines file of {"messages": [{"role": …, "content": …}, …]}; the model learns the assistant's messages.`, yamlfile.File(&w.Path)).Required(),
			key("steps", "Number of optimizer steps.", yamlfile.Integer(&w.Steps, yamlfile.Min(1))).Default(engine.DefaultWarmSteps),
			key("batch", "Conversations in a step.", yamlfile.Integer(&w.Batch, yamlfile.Min(1))).Default(32),
		}, keys.Rate(&w.Schedule, "By default 0.003, falling to 0, after a warm-up over a tenth of the steps, at most 100.")...)...).Check(keys.OneRate)
	}, func(w engine.WarmStart) { *to = &w })
}
