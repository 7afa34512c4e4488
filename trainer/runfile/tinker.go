package runfile

import (
	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/chat/pretrained"
	"github.com/agl-go/agl/tinker/client"
	"github.com/agl-go/agl/tinker/engines"
	"github.com/agl-go/agl/tinker/wire"
	"github.com/agl-go/agl/trainer/keys"
)

func remote(to **Tinker) yamlfile.Value {
	key, from := yamlfile.Key, yamlfile.Min
	return yamlfile.Via(func(t *Tinker) yamlfile.Value {
		c := &t.Client
		return yamlfile.Mapping(
			key("base_url", "The URL of the engine, without /api/v1, such as http://127.0.0.1:8000.", yamlfile.URL(&c.URL)).Required(", the URL of the engine"),
			key("api_key", "The key that is sent as X-API-Key.", yamlfile.Secret(&c.APIKey)),
			key("model", "The base model; by default the engine's first.", yamlfile.Text(&t.Model)),
			key("lora_rank", "Rank of the adapter, on engines that train one.", yamlfile.Integer(&t.LoRARank, from(1))).Default(wire.DefaultLoRARank),
			key("seed", "Initializes the adapter; by default the seed of the run.", yamlfile.Via(func(v *uint64) yamlfile.Value {
				return yamlfile.Integer(v)
			}, func(v uint64) { t.Seed = agl.Some(v) })),
			key("chat", "The model's tokenizer and chat template, or characters alone for one token per character, as in agl policy serve.", format(&t.Chat)).
				Required(`, the model's tokenizer and chat template, such as "chat: {folder: models/qwen3}"`),
			key("weights", "A checkpoint of the engine to start from, tinker://MODEL/weights/NAME.", yamlfile.Text(&t.Weights)),
			key("warm_start", "Supervised training on conversations, before the algorithm; for one token per character.", warmStart(&t.WarmStart)),
			key("encoding", "The encoding of requests and results; auto detects what the engine accepts.",
				yamlfile.Words(&c.Encoding, engines.Auto, engines.JSON, engines.Protobuf)).Default(string(engines.Auto)),
			key("max_samples", "Sampling calls at the same time; the engine may ask for fewer.", yamlfile.Integer(&c.MaxSamples, from(1))).Default(256),
			key("chunk_data", "The largest number of sequences of a request; a larger batch is sent in several. By default what the engine says, or 1024.", yamlfile.Integer(&c.ChunkData, from(1))),
			key("chunk_size", "The largest size of a request; by default what the engine says, or 5 MB.", yamlfile.Size(&c.ChunkBytes)),
			key("request_timeout", "Timeout of one request; results that take longer are requested again.", yamlfile.Duration(&c.RequestTimeout)).Default("1m"),
			key("retry_for", "How long requests are retried while the engine is unavailable.", yamlfile.Duration(&c.RetryFor)).Default("2m"),
			key("timeout", "Timeout of one call, such as a gradient, with all its requests.", yamlfile.Duration(&c.CallTimeout)).Default("1h"),
			key("capabilities", "The capabilities of the engine, for engines that do not report them; they replace what an engine reports.", capabilities(&c.Engine)),
		).Check(func(s *yamlfile.Scope) {
			if s.Clean() {
				checkTinker(s, t)
			}
		})
	}, func(t Tinker) { *to = &t })
}

// checkTinker checks combinations, and lets the client check its settings.
func checkTinker(s *yamlfile.Scope, t *Tinker) {
	if t.WarmStart != nil && t.Chat.Folder != "" {
		s.Failf("warm_start", "given together with chat.folder, but demonstrations need one token per character")
	}
	if t.WarmStart != nil && t.Weights != "" {
		s.Failf("warm_start", "given together with weights, must be one of them")
	}
	if t.Weights != "" {
		path, err := tinker.ParsePath(t.Weights)
		switch {
		case err != nil:
			s.FailAt("weights", err)
		case path.Kind != tinker.KindCheckpoint:
			s.Failf("weights", "got %q, a snapshot for sampling, must be a checkpoint, tinker://MODEL/weights/NAME", t.Weights)
		}
	}
	c, err := client.New(t.Client)
	if err == nil {
		err = c.Close()
	}
	s.Fail(err)
}

// format declares a chat format.
func format(to *Chat) yamlfile.Value {
	const characters = "characters"
	var word string
	key := yamlfile.Key
	return yamlfile.Short(yamlfile.Words(&word, characters), yamlfile.Mapping(
		key("folder", "A folder with tokenizer.json, tokenizer_config.json and, if the model has them, chat_template.jinja and generation_config.json.", yamlfile.Folder(&to.Folder)),
		key("style", "How the model writes tool calls; by default detected from the template.",
			yamlfile.Words(&to.Style, pretrained.StyleNone, pretrained.StyleHermes, pretrained.StyleLlama, pretrained.StyleDeepSeek)),
		key("stop", "Further tokens that end a reply, besides those in the files.", yamlfile.NonEmptyList(&to.Stop, yamlfile.Text)),
		key("turns", "How many prompts and replies are remembered, so that later prompts continue their tokens; at least one for each conversation that is under way.", keys.Count(&to.Turns)).Default(1024),
		key("turn_memory", "The memory that they take at most.", yamlfile.Size(&to.TurnBytes)).Default("256MiB"),
		key(characters, "The vocabulary, one token per character, instead of a folder.", yamlfile.Text(&to.Characters)).Default(chat.DefaultAlphabet),
	).Check(func(s *yamlfile.Scope) {
		switch {
		case s.Given("folder") == s.Given(characters):
			s.Failf("", "must have one of folder and characters")
		case s.Given(characters):
			for _, other := range []string{"style", "stop", "turns", "turn_memory"} {
				if s.Given(other) {
					s.Failf(other, "given together with characters, but it belongs to the model in a folder")
				}
			}
		}
		if s.Given(characters) {
			_, err := chat.NewCharacters(to.Characters)
			s.FailAt(characters, err)
		}
	}))
}

// capabilities declares the capabilities of an engine.
func capabilities(to **engines.Engine) yamlfile.Value {
	key, count := yamlfile.Key, keys.Count
	return yamlfile.Via(func(e *engines.Engine) yamlfile.Value {
		return yamlfile.Mapping(
			key("engine", "An engine whose capabilities are known (docs/engines.md); the other keys change single ones.", yamlfile.Words(&e.Name, engines.Names()...)),
			key("losses", "Its losses; by default cross_entropy, importance_sampling and ppo.",
				yamlfile.NonEmptyList(&e.Losses, func(l *tinker.LossName) yamlfile.Value { return yamlfile.Text((*string)(l)) })),
			key("normalization", "How the losses of a batch are reduced: sum adds them, datum_mean divides each sequence's loss by its weights and takes the mean. By default losses are not corrected.",
				yamlfile.Words(&e.Normalization, engines.Sum, engines.DatumMean)),
			key("immutable_snapshots", "A published snapshot never changes, so that it can be sampled during training.", yamlfile.Bool(&e.ImmutableSnapshots)).Default(false),
			key("optimizer_optional", "Weights can be loaded without the optimizer's state.", yamlfile.Bool(&e.OptimizerOptional)).Default(false),
			key("deterministic", "The same calls give the same bits.", yamlfile.Bool(&e.Deterministic)).Default(false),
			key("idempotent", "A repeated call runs once.", yamlfile.Bool(&e.Idempotent)).Default(false),
			key("load_discards_gradient", "Loading weights discards a gradient that was not applied.", yamlfile.Bool(&e.LoadDiscardsGradient)).Default(false),
			key("advantages_only", "The losses of policies take advantages and no weights; weights are multiplied into the advantages.", yamlfile.Bool(&e.AdvantagesOnly)).Default(false),
			key("wide_seeds", "Seeds may have 64 bits; otherwise seeds of more than 31 bits are hashed to 30.", yamlfile.Bool(&e.WideSeeds)).Default(false),
			key("vocab", "Number of token ids of the model.", count(&e.Vocab)),
			key("context", "The longest conversation in tokens.", count(&e.Context)),
		).Check(func(s *yamlfile.Scope) {
			if s.Clean() && s.Given("engine") {
				known, err := engines.Find(e.Name)
				s.FailAt("engine", err)
				*e = overridden(s, known, *e)
			}
		})
	}, func(e engines.Engine) { *to = &e })
}

// overridden is a known engine with the capabilities that the file gives.
func overridden(s *yamlfile.Scope, known, given engines.Engine) engines.Engine {
	for key, set := range map[string]func(){
		"losses":                 func() { known.Losses = given.Losses },
		"normalization":          func() { known.Normalization = given.Normalization },
		"immutable_snapshots":    func() { known.ImmutableSnapshots = given.ImmutableSnapshots },
		"optimizer_optional":     func() { known.OptimizerOptional = given.OptimizerOptional },
		"deterministic":          func() { known.Deterministic = given.Deterministic },
		"idempotent":             func() { known.Idempotent = given.Idempotent },
		"load_discards_gradient": func() { known.LoadDiscardsGradient = given.LoadDiscardsGradient },
		"advantages_only":        func() { known.AdvantagesOnly = given.AdvantagesOnly },
		"wide_seeds":             func() { known.WideSeeds = given.WideSeeds },
		"vocab":                  func() { known.Vocab = given.Vocab },
		"context":                func() { known.Context = given.Context },
	} {
		if s.Given(key) {
			set()
		}
	}
	return known
}

// ModelSeed is the seed of the engine's model.
func (f *File) ModelSeed() uint64 {
	if f.Engine != nil && f.Engine.Tinker != nil && f.Engine.Tinker.Seed.Valid {
		return f.Engine.Tinker.Seed.V
	}
	return f.Seed
}
