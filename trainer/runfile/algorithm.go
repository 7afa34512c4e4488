package runfile

import (
	"cmp"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/baseline"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
)

func (d *draft) algorithm(to *Algorithm) yamlfile.Value {
	key := yamlfile.Key
	return yamlfile.OneOf(
		key("grpo", "Reinforcement learning of the engine's weights: what earned more than the rest of its group becomes more likely.", reinforce(&to.GRPO)),
		key("sft", "Supervised training of the engine's weights on rollouts: those that another run has left, or the best of the model's own.", d.tune(&to.SFT)),
		key("apo", "Prompt optimisation: a model criticises and rewrites the prompts, the best on the validation tasks stay.", optimise(&to.APO)),
		key("baseline", "Learns nothing: runs every task and reports.", runAll(&to.Baseline)),
	)
}

func reinforce(to **grpo.Config) yamlfile.Value {
	return yamlfile.Via(func(c *grpo.Config) yamlfile.Value {
		key, from := yamlfile.Key, yamlfile.Min
		positive := func(v *float64) yamlfile.Value { return yamlfile.Number(v, yamlfile.Above(0)) }
		decay := func(v *float64) yamlfile.Value { return yamlfile.Number(v, yamlfile.Above(0), yamlfile.Below(1)) }
		keys := []yamlfile.Field{
			key("steps", "Number of steps.", yamlfile.Integer(&c.Steps, from(1))).Required(),
			key("prompts_per_step", "Tasks of a step.", yamlfile.Integer(&c.PromptsPerStep, from(1))).Default(16),
			key("group_size", "Rollouts of each task.", yamlfile.Integer(&c.GroupSize, from(2))).Default(8),
			key("loss", "The loss, or its name alone.", loss(&c.Loss)).Default(string(tinker.ImportanceSampling)),
			key("minibatches", "Optimizer steps into which the data of a step is divided.", yamlfile.Integer(&c.Minibatches, from(1))).Default(1),
		}
		keys = append(keys, rate(&c.Schedule, "0.001 when neither is here.")...)
		keys = append(keys,
			key("adam", "The optimizer.", yamlfile.Mapping(
				key("beta1", "Decay of the first moment.", decay(&c.Adam.Beta1)).Default(0.9),
				key("beta2", "Decay of the second moment.", decay(&c.Adam.Beta2)).Default(0.98),
				key("eps", "Added to the root of the second moment.", positive(&c.Adam.Eps)).Default(1e-12),
				key("weight_decay", "Multiplied with the learning rate and the weight.", yamlfile.Number(&c.Adam.WeightDecay)).Default(0),
				key("grad_clip_norm", "The largest norm of the gradient.", positive(&c.Adam.GradClipNorm)).Default(1),
			)),
			key("baseline", "What a rollout's reward is compared with: the mean of its group, or of the others in it (RLOO), which is divided by nothing.",
				yamlfile.Words(&c.Baseline, grpo.Baselines()...)).Default(string(grpo.GroupMean)),
			key("plain_advantage", "Leaves out the division by the standard deviation, as Dr. GRPO does.", yamlfile.Bool(&c.PlainAdvantage)).Default(false),
			key("length_normalization", "Gives every rollout the same weight, whatever its length.", yamlfile.Bool(&c.LengthNormalization)).Default(false),
			key("mask_truncated", "Leaves rollouts with a reply that was cut, because it or the context was full, out of the loss, as DAPO does; their rewards count in the group.", yamlfile.Bool(&c.MaskTruncated)).Default(false),
			key("kl", "A penalty on tokens that became likelier than under a reference, or its coefficient alone.", penalty(&c.KL)).Default(0),
			key("pass_reward", "The reward from which on a rollout counts as passed.", positive(&c.PassReward)).Default(1),
			key("form", "The member of tasks that names their form, for pass rates by form.",
				yamlfile.Via(yamlfile.Text, func(name string) { c.Form = memberOf(name) })),
			key("validation", "When the validation tasks are tried, besides before the first step and after the last.", yamlfile.Mapping(
				key("every", "Steps between validations; 0 is none in between.", yamlfile.Integer(&c.ValidateEvery)).Default(0),
				key("n", "Tries only so many tasks; 0 tries all.", yamlfile.Integer(&c.Validation.N)).Default(0),
			)),
			key("checkpoint_every", "Steps between checkpoints.", yamlfile.Integer(&c.CheckpointEvery, from(1))).Default(25),
		)
		return yamlfile.Mapping(keys...).Check(oneRate).Check(func(s *yamlfile.Scope) {
			if s.Clean() {
				checkGRPO(s, *c)
			}
		})
	}, func(c grpo.Config) { *to = &c })
}

// checkGRPO lets the algorithm judge its settings, with an engine in the place
// of the run's.
func checkGRPO(s *yamlfile.Scope, c grpo.Config) {
	service, err := policy.NewService(policy.Config{Vocab: 2})
	if err == nil {
		c.Service = service
		_, err = grpo.New(c)
	}
	s.Fail(err)
}

func loss(to *tinker.Loss) yamlfile.Value {
	name := yamlfile.Words(&to.Name, tinker.LossNames()[1:]...)
	return yamlfile.Short(name, yamlfile.Mapping(
		yamlfile.Key("name", "The loss.", name).Required(),
		yamlfile.Key("clip_low", "Lower bound of the ratio of probabilities in ppo and cispo.", yamlfile.Number(&to.ClipLow, yamlfile.Above(0), yamlfile.Max(1))).Default(0.8),
		yamlfile.Key("clip_high", "Their upper bound.", yamlfile.Number(&to.ClipHigh, yamlfile.Min(1))).Default(1.2),
		yamlfile.Key("beta", "Weight of dro's penalty on what has moved away from the sampler.", yamlfile.Number(&to.Beta, yamlfile.Above(0))).Default(0.05),
	))
}

func penalty(to *grpo.KL) yamlfile.Value {
	coefficient := yamlfile.Number(&to.Coefficient)
	return yamlfile.Short(coefficient, yamlfile.Mapping(
		yamlfile.Key("coefficient", "Advantage per nat of difference; 0 turns it off.", coefficient).Required(),
		yamlfile.Key("reference", "A checkpoint of the engine, tinker://MODEL/weights/NAME; the weights that training starts from when it is not here.", yamlfile.Text(&to.Reference)),
	))
}

// memberOf returns a member of a task: a text as it is, else its JSON.
func memberOf(name string) func(task jsontext.Value) string {
	return func(task jsontext.Value) string {
		value, ok := rawjson.Get(task, name)
		if !ok {
			return ""
		}
		var text string
		if json.Unmarshal(value, &text) == nil {
			return text
		}
		return string(value)
	}
}

func optimise(to **APO) yamlfile.Value {
	return yamlfile.Via(func(a *APO) yamlfile.Value {
		key, count := yamlfile.Key, func(v *int) yamlfile.Value { return yamlfile.Integer(v, yamlfile.Min(1)) }
		c := &a.Config
		return yamlfile.Mapping(
			key("gradient_model", "The model that criticises prompts, or the name alone of one of the run's proxy.", critic(&a.Gradient, &c.GradientPrice)).Required(),
			key("edit_model", "The model that rewrites them; gradient_model when it is not here.", yamlfile.Via(func(e *apo.EndpointConfig) yamlfile.Value {
				return critic(e, &c.EditPrice)
			}, func(e apo.EndpointConfig) { a.Edit = &e })),
			key("budget", "Ends the search when it is spent on calls of these two models; what is not here is not bounded.", yamlfile.Mapping(
				key("tokens", "Tokens of prompts and replies.", yamlfile.Integer(&c.Budget.Tokens)),
				key("dollars", "Dollars, by the models' prices.", yamlfile.Number(&c.Budget.Dollars)),
			)),
			key("temperature", "At which the models sample.", yamlfile.Via(func(v *float64) yamlfile.Value { return yamlfile.Number(v) },
				func(v float64) { c.Temperature = agl.Some(v) })).Default(1),
			key("attempts", "How often a model is asked for one critique or one usable edit.", count(&c.Attempts)).Default(3),
			key("beam_width", "Candidates that go from round to round.", count(&c.BeamWidth)).Default(4),
			key("branch_factor", "Edits of each of them.", count(&c.BranchFactor)).Default(4),
			key("rounds", "Number of rounds.", count(&c.Rounds)).Default(3),
			key("gradient_batch", "Training tasks that a critique sees.", count(&c.GradientBatch)).Default(4),
			key("val_batch", "Validation tasks on which the candidates of a round are compared.", count(&c.ValBatch)).Default(16),
			key("skip_initial_validation", "Does not try the prompts as they are before the first round.", yamlfile.Bool(&c.SkipInitialValidation)).Default(false),
			key("final_samples", "Fresh rollouts of each validation task in the last comparison.", count(&c.FinalSamples)).Default(1),
			key("level", "Coverage of intervals.", yamlfile.Number(&c.Level, yamlfile.Above(0), yamlfile.Below(1))).Default(0.95),
			key("resamples", "Bootstrap samples of an interval.", yamlfile.Integer(&c.Resamples, yamlfile.Min(100))).Default(2000),
			key("critique_prompts", "Files of requests for a critique, Go templates; agl has its own.", texts(&c.CritiquePrompts)),
			key("edit_prompts", "Files of requests for an edit.", texts(&c.EditPrompts)),
			key("experiment_size", "Bound of the messages of one rollout in a request.", yamlfile.Size(&c.ExperimentBytes)).Default("8KiB"),
			key("concurrency", "Edits that are made, and candidates that are tried, at once.", count(&c.Concurrency)).Default(8),
			key("batch_timeout", "Ends the wait for a batch of rollouts.", yamlfile.Duration(&c.BatchTimeout)).Default("1h"),
		).Check(func(s *yamlfile.Scope) {
			if s.Clean() {
				checkAPO(s, a)
			}
		})
	}, func(a APO) { *to = &a })
}

// checkAPO lets the algorithm judge its settings.
func checkAPO(s *yamlfile.Scope, a *APO) {
	c := a.Config
	endpoints := []apo.EndpointConfig{a.Gradient}
	models := []*apo.Model{&c.GradientModel}
	if a.Edit != nil {
		endpoints, models = append(endpoints, *a.Edit), append(models, &c.EditModel)
	}
	for i, e := range endpoints {
		e.BaseURL = cmp.Or(e.BaseURL, "http://127.0.0.1") // of the run's proxy, which has no port yet
		model, err := apo.NewEndpoint(e)
		if err != nil {
			s.Fail(err)
			return
		}
		*models[i] = model
	}
	_, err := apo.New(c)
	s.Fail(err)
}

// critic declares a model, or its name alone.
func critic(e *apo.EndpointConfig, price *apo.Price) yamlfile.Value {
	key := yamlfile.Key
	return yamlfile.Short(yamlfile.Text(&e.Model), yamlfile.Mapping(
		key("model", "The model to ask for.", yamlfile.Text(&e.Model)).Required(),
		key("base_url", "Of an OpenAI-compatible API, usually ending in /v1; the run's proxy when it is not here.", yamlfile.URL(&e.BaseURL)),
		key("api_key", "Sent to it.", yamlfile.Secret(&e.APIKey)),
		key("requests_per_second", "Bound of the requests; 0 is none.", yamlfile.Number(&e.RequestsPerSecond)).Default(0),
		key("timeout", "Of one request.", yamlfile.Duration(&e.Timeout)).Default("5m"),
		key("attempts", "How often a request is made that gets no answer.", yamlfile.Integer(&e.MaxAttempts, yamlfile.Min(1))).Default(6),
		key("send_seed", "Sends a seed, which not every API takes.", yamlfile.Bool(&e.SendSeed)).Default(false),
		key("price", "Dollars per million tokens.", yamlfile.Mapping(
			key("prompt", "Of prompts.", yamlfile.Number(&price.Prompt)).Default(0),
			key("completion", "Of replies.", yamlfile.Number(&price.Completion)).Default(0),
		)),
	)).Check(func(s *yamlfile.Scope) {
		switch {
		case s.Clean() && e.Model == "":
			s.Failf("", "the name of the model is empty")
		case e.BaseURL == "" && e.APIKey != "":
			s.Failf("api_key", "given without base_url, but the run's proxy needs none")
		}
	})
}

// ownModel is the name of a model of the run's own proxy; empty for others.
func ownModel(e *apo.EndpointConfig) string {
	if e == nil || e.BaseURL != "" {
		return ""
	}
	return e.Model
}

// texts declares files that stand for their texts.
func texts(to *[]string) yamlfile.Value {
	return yamlfile.NonEmptyList(to, func(text *string) yamlfile.Value {
		return yamlfile.Via(yamlfile.Contents, func(f yamlfile.TextFile) { *text = f.Text })
	})
}

func runAll(to **baseline.Config) yamlfile.Value {
	return yamlfile.Via(func(c *baseline.Config) yamlfile.Value {
		key := yamlfile.Key
		return yamlfile.Mapping(
			key("epochs", "How often the tasks are gone through.", yamlfile.Integer(&c.Epochs, yamlfile.Min(1))).Default(1),
			key("max_queue_length", "How many rollouts may wait before another is enqueued.", yamlfile.Integer(&c.MaxQueueLength, yamlfile.Min(1))).Default(4),
			key("span_verbosity", "How much of a span is logged.",
				yamlfile.Words(&c.SpanVerbosity, baseline.SpanKeys, baseline.SpanKeyValues, baseline.SpanNone)).Default(string(baseline.SpanKeys)),
		)
	}, func(c baseline.Config) { *to = &c })
}
