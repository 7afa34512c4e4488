package algorithms

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/plot"
)

// GRPO is package grpo with its settings in a run file. The run sets RunConfig and
// the engine.
type GRPO struct{ grpo.Config }

func grpoKeys(string) (yamlfile.Value, Algorithm) {
	a := &GRPO{}
	key, from, c := yamlfile.Key, yamlfile.Min, &a.Config
	decay := func(v *float64) yamlfile.Value { return yamlfile.Number(v, yamlfile.Above(0), yamlfile.Below(1)) }
	fields := []yamlfile.Field{
		key("steps", "Number of steps.", keys.Count(&c.Steps)).Required(),
		key("prompts_per_step", "Tasks of a step.", keys.Count(&c.PromptsPerStep)).Default(16),
		key("group_size", "Rollouts of each task.", yamlfile.Integer(&c.GroupSize, from(2))).Default(8),
		key("loss", "The loss, or its name alone.", loss(&c.Loss)).Default(string(tinker.ImportanceSampling)),
		key("minibatches", "Optimizer steps over the data of a step.", keys.Count(&c.Minibatches)).Default(1),
	}
	fields = append(fields, keys.Rate(&c.Schedule, "If neither is given, 0.001, and 0.00004 for a model with `engine.tinker.chat.folder`.")...)
	fields = append(fields,
		key("adam", "The optimizer.", yamlfile.Mapping(
			key("beta1", "Decay of the first moment.", decay(&c.Adam.Beta1)).Default(0.9),
			key("beta2", "Decay of the second moment; 0.95 for a model with `engine.tinker.chat.folder`.", decay(&c.Adam.Beta2)).Default(0.98),
			key("eps", "Added to the root of the second moment.", keys.Positive(&c.Adam.Eps)).Default(1e-12),
			key("weight_decay", "Multiplied with the learning rate and the weight.", yamlfile.Number(&c.Adam.WeightDecay)).Default(0),
			key("grad_clip_norm", "The largest norm of the gradient.", keys.Positive(&c.Adam.GradClipNorm)).Default(1),
		)),
		key("baseline", "What a rollout's reward is compared with: the mean of its group, or the mean of the others in it (RLOO), without normalization.",
			yamlfile.Words(&c.Baseline, grpo.Baselines()...)).Default(string(grpo.GroupMean)),
		key("plain_advantage", "Leaves out the division by the standard deviation, as Dr. GRPO does.", yamlfile.Bool(&c.PlainAdvantage)).Default(false),
		key("credit", "What a reward is credited to: all tokens of its rollout, or the calls before it, by reward-to-go.",
			yamlfile.Words(&c.Credit, grpo.Credits()...)).Default(string(grpo.CreditTrajectory)),
		key("discount", "The discount of rewards-to-go, for each call in between, with `credit: turn`.", keys.Positive(&c.Discount)).Default(1),
		key("length_normalization", "Gives every rollout the same weight, whatever its length.", yamlfile.Bool(&c.LengthNormalization)).Default(false),
		key("mask_truncated", "Leaves rollouts with a truncated reply out of the loss, as DAPO does; their rewards still count in the group.", yamlfile.Bool(&c.MaskTruncated)).Default(false),
		key("overlong", "Lowers the reward of long replies before they are cut off, as DAPO's soft punishment does.", yamlfile.Mapping(
			key("limit", "The length of a reply, in tokens, from which the whole penalty applies.", keys.Count(&c.Overlong.Limit)).Required(),
			key("margin", "The number of tokens before the limit in which the penalty grows.", keys.Count(&c.Overlong.Margin)).Required(),
			key("penalty", "The whole penalty, in units of the reward.", keys.Positive(&c.Overlong.Penalty)).Default(1),
		)),
		key("curriculum", "Draws the tasks by learning progress: most often those on which the pass rate has lately changed.", yamlfile.Via(func(to *grpo.Curriculum) yamlfile.Value {
			return yamlfile.Mapping(
				key("explore", "The share of tasks that are drawn without regard to progress.", yamlfile.Number(&to.Explore, yamlfile.Above(0), yamlfile.Max(1))).Default(0.2),
			)
		}, func(set grpo.Curriculum) { c.Curriculum = &set })),
		key("max_group_size", "Rollouts of a hard task: while all rewards of a group are equal and below pass_reward, it gets as many rollouts again, up to this number. By default group_size, so that none grows.", yamlfile.Integer(&c.MaxGroupSize, from(2))),
		key("dynamic_sampling", "Drops groups whose rewards are all equal and samples other tasks in their place, as DAPO does; at most ten times the groups of a step.", yamlfile.Bool(&c.DynamicSampling)).Default(false),
		key("async", "Sampling that runs ahead of training, or by how many versions it may alone.", async(&c.Async)),
		key("correction", "How the loss corrects for samples of older weights beyond its own ratio, or the kind alone; it takes a forward pass a step.", correction(&c.Correction)),
		key("processed_logprobs", "The engine returns log-probabilities of the distribution that it samples from, whatever the temperature, as vLLM does whose logprobs mode is `processed_logprobs`. Otherwise rollouts with calls at another temperature than 1, or with a truncated distribution, are masked.", yamlfile.Bool(&c.ProcessedLogprobs)).Default(false),
		key("kl", "A penalty on tokens that became likelier than under a reference, or its coefficient alone.", penalty(&c.KL)).Default(0),
		key("pass_reward", "The reward from which a rollout counts as passed.", keys.Positive(&c.PassReward)).Default(1),
		key("form", "The member of tasks that names their form, for pass rates by form.", keys.Form(&c.Form)),
		key("validation", "When the validation tasks run, besides before the first step and after the last.", yamlfile.Mapping(
			key("every", "Steps between validations; 0 has none in between.", yamlfile.Integer(&c.ValidateEvery)).Default(0),
			key("n", "Runs only the first n tasks; 0 runs all.", yamlfile.Integer(&c.Validation.N)).Default(0),
		)),
		key("checkpoint_every", "Steps between checkpoints. Weights that are validated while training goes on (async) get one, too.", keys.Count(&c.CheckpointEvery)).Default(25),
	)
	return yamlfile.Mapping(fields...).Check(keys.OneRate).Check(func(s *yamlfile.Scope) {
		if s.Clean() {
			s.Fail(a.check())
		}
	}), a
}

func loss(to *tinker.Loss) yamlfile.Value {
	name := yamlfile.Words(&to.Name, tinker.LossNames()[1:]...)
	return yamlfile.Short(name, yamlfile.Mapping(
		yamlfile.Key("name", "The loss.", name).Required(),
		yamlfile.Key("clip_low", "Lower bound of the ratio of probabilities in ppo and cispo.", yamlfile.Number(&to.ClipLow, yamlfile.Above(0), yamlfile.Max(1))).Default(0.8),
		yamlfile.Key("clip_high", "Their upper bound.", yamlfile.Number(&to.ClipHigh, yamlfile.Min(1))).Default(1.2),
		yamlfile.Key("beta", "Weight of dro's penalty on the distance from the sampler.", yamlfile.Number(&to.Beta, yamlfile.Above(0))).Default(0.05),
	))
}

func async(to *grpo.Async) yamlfile.Value {
	key, staleness := yamlfile.Key, yamlfile.Integer(&to.MaxStaleness)
	return yamlfile.Short(staleness, yamlfile.Mapping(
		key("max_staleness", "By how many versions sampling may run ahead; 0 samples, trains, and samples again.", staleness).Required(),
		key("pin", "Which version of the model answers: call sends each call to the newest, rollout all calls of a rollout to that with which it was enqueued.",
			yamlfile.Words(&to.Pin, grpo.Pins()...)).Default(string(grpo.PinCall)),
		key("concurrency", "Groups that may be open at once; by default all that max_staleness admits.", keys.Count(&to.Concurrency)),
		key("on_stale", "What happens to groups that take so long that they would be older than max_staleness: they are trained on when they are ready, training waits for them, or they are dropped and other tasks sampled in their place.",
			yamlfile.Words(&to.OnStale, admission.OnStales()...)).Default(string(admission.Train)),
		key("min_viable", "Rollouts of a group that must count, or another task is sampled in its place; what the infrastructure failed does not count. 0 drops no group.", yamlfile.Integer(&to.MinViable)).Default(0),
		key("group_timeout", "How long a group may take; its unfinished rollouts are then cancelled, and the others compared. 0 is no limit.", yamlfile.DurationOrZero(&to.GroupTimeout)).Default("0s"),
		key("oversample", "Rollouts of a group beyond group_size. When group_size have finished that count, the others are cancelled.", yamlfile.Integer(&to.Oversample)).Default(0),
		key("minibatches", "Parts in which a step takes its groups: the gradient of the first is computed while the others are being sampled. A multiple of algorithm.grpo.minibatches, the optimizer steps that they make, that divides prompts_per_step.",
			keys.Count(&to.Minibatches)).Default(1),
	))
}

func correction(to *grpo.Correction) yamlfile.Value {
	kind := yamlfile.Words(&to.Kind, grpo.CorrectionKinds()...)
	return yamlfile.Short(kind, yamlfile.Mapping(
		yamlfile.Key("kind", "What weighs or rejects tokens and sequences.", kind).Required(),
		yamlfile.Key("low", "The lower bound of icepop, gspo and geometric; by default that of the kind.", keys.Positive(&to.Low)),
		yamlfile.Key("high", "The upper bound; by default that of the kind.", keys.Positive(&to.High)),
	))
}

func penalty(to *grpo.KL) yamlfile.Value {
	coefficient := yamlfile.Number(&to.Coefficient)
	return yamlfile.Short(coefficient, yamlfile.Mapping(
		yamlfile.Key("coefficient", "Advantage per nat of difference; 0 turns the penalty off.", coefficient).Required(),
		yamlfile.Key("reference", "A checkpoint of the engine, tinker://MODEL/weights/NAME; by default the weights that training starts from.", yamlfile.Text(&to.Reference)),
	))
}

// check lets the algorithm check its settings.
func (a *GRPO) check() error {
	c := a.Config
	c.Service = standIn
	_, err := grpo.New(c)
	return err
}

// Name implements [Algorithm].
func (*GRPO) Name() string { return "grpo" }

// Describe implements [Algorithm].
func (a *GRPO) Describe() string { return display.Plural(a.Steps, "step") }

// Needs implements [Algorithm].
func (a *GRPO) Needs() Needs { return Needs{Losses: a.Losses(), Calls: true, Roles: true} }

// New implements [Algorithm].
func (a *GRPO) New(p Parts) (Run, error) {
	c := a.configure(p)
	ShowGRPO(&c, p.Display, p.Warn)
	g, err := grpo.New(c)
	return &grpoRun{g, c.OutDir}, err
}

// configure completes the settings with the parts of a run. What the file leaves open is the engine's default.
func (a *GRPO) configure(p Parts) grpo.Config {
	c := a.Config
	c.RunConfig, c.TrainingConfig, c.Roles = p.RunConfig, p.with(a.TrainingConfig), p.Roles
	if c.Schedule.Peak == 0 {
		c.Schedule = p.Training.Schedule
	}
	c.Adam.Beta2 = cmp.Or(c.Adam.Beta2, p.Training.Adam.Beta2)
	return c
}

// ShowGRPO makes runs of a Config report their steps to a display and their warnings to warn.
func ShowGRPO(c *grpo.Config, d display.Display, warn func(text string)) {
	v := &trainingView{display: d, warn: warn}
	c.Progress = v.progress()
	c.OnStep = func(r grpo.StepReport) {
		v.step = r.Step
		masked, forms := 0, ""
		for _, n := range r.Masked {
			masked += n
		}
		rows := []display.Row{v.stepsRow(), {Label: "reward", Text: fmt.Sprintf("%.2f  pass rate %.2f  %.0f tokens/s  %d masked", r.RewardMean, r.PassRate, r.TokensPerSecond, masked)}}
		for _, name := range slices.Sorted(maps.Keys(r.Forms)) {
			rate := r.Forms[name]
			rows = append(rows, display.Row{Label: "  " + name, Done: rate.Passed, Total: rate.N, Text: fmt.Sprintf("%.2f", rate.PassRate)})
		}
		if len(r.Forms) > 0 {
			forms = "  " + display.Forms(r.Forms)
		}
		for _, name := range slices.Sorted(maps.Keys(r.Roles)) {
			text := fmt.Sprintf("%.2f", r.Roles[name].RewardMean)
			rows = append(rows, display.Row{Label: "  " + name, Text: "reward " + text})
			forms += "  " + name + " " + text
		}
		of := ""
		if r.Steps > 0 {
			of = fmt.Sprintf("/%d", r.Steps)
		}
		replayed := ""
		if n := len(r.Replayed); n > 0 {
			replayed = fmt.Sprintf("  replayed %d with reward %.3f", n, r.ReplayedReward)
			rows = append(rows, display.Row{Label: "  replayed", Text: fmt.Sprintf("%d sessions  reward %.2f", n, r.ReplayedReward)})
		}
		d.Update(display.Update{
			Line: fmt.Sprintf("step %4d%s  reward %.3f  pass %.3f%s  masked %d%s  %.0f tokens/s", r.Step, of, r.RewardMean, r.PassRate, forms, masked, replayed, r.TokensPerSecond),
			Rows: rows,
		})
	}
}

// grpoRun is a run of GRPO.
type grpoRun struct {
	*grpo.GRPO
	outDir string
}

// GRPOSummary is the summary of a run of GRPO.
type GRPOSummary struct {
	TrainingSummary
	Spans int `json:"spans"`
	// Roles are the engine's paths of the last checkpoint of the agents after the first, by name.
	Roles map[string]string `json:"roles,omitzero"`
}

// Result implements [Run].
func (r *grpoRun) Result() Result {
	s := r.Summary()
	sentence := fmt.Sprintf("%d steps, %s rollouts, %s tokens sampled in training.", s.Step, display.Count(int64(s.Totals.Rollouts)), display.Count(int64(s.Totals.Tokens)))
	return Result{
		Summary: GRPOSummary{summarize(s), s.Totals.Spans, s.Roles}, Report: reportTraining(sentence, s), Text: validationText(s),
		Chart: passRateChart(r.outDir), Best: &Best{Weights: s.Weights, Agents: s.Roles, Improved: improved(s)}, Repeats: repeats(s),
	}
}

// passRateChart draws the pass rates of the steps for a terminal.
func passRateChart(outDir string) string {
	steps, err := algorithm.ReadLines[grpo.StepReport](metricsFile(outDir))
	if err != nil {
		return "" // the report says so
	}
	var rates []float64
	for _, s := range steps {
		if s.Step > 0 {
			rates = append(rates, s.PassRate)
		}
	}
	if len(rates) == 0 {
		return ""
	}
	return "pass rate of each step's rollouts\n" + display.Chart(1, rates)
}

// Curves implements [Algorithm].
func (*GRPO) Curves(outDir string) ([]Curve, error) {
	steps, err := algorithm.ReadLines[grpo.StepReport](metricsFile(outDir))
	var pass, validation, length, truncated, speed []plot.Point
	forms, rewards := map[string][]plot.Point{}, map[string][]plot.Point{}
	for _, s := range steps {
		x := float64(s.Step)
		if s.Beside != nil {
			validation = append(validation, plot.Point{X: float64(s.Beside.Step), Y: s.Beside.Validation.PassRate})
		}
		if s.Validation != nil {
			validation = append(validation, plot.Point{X: x, Y: s.Validation.PassRate})
		}
		if s.Step == 0 {
			continue
		}
		rewards[s.Role] = append(rewards[s.Role], plot.Point{X: x, Y: s.RewardMean})
		for name, of := range s.Roles {
			rewards[name] = append(rewards[name], plot.Point{X: x, Y: of.RewardMean})
		}
		pass = append(pass, plot.Point{X: x, Y: s.PassRate})
		for name, rate := range s.Forms {
			forms[name] = append(forms[name], plot.Point{X: x, Y: rate.PassRate})
		}
		if s.Rollouts > 0 {
			length = append(length, plot.Point{X: x, Y: float64(s.ResponseTokens) / float64(s.Rollouts)})
			truncated = append(truncated, plot.Point{X: x, Y: float64(s.Truncated) / float64(s.Rollouts)})
		}
		speed = append(speed, plot.Point{X: x, Y: s.TokensPerSecond})
	}
	const label = "step"
	// The loss of a policy gradient falls for reasons other than learning, so there is
	// no curve of it; metrics.jsonl has it.
	return []Curve{
		{"pass-rate", plot.Chart{Title: "Pass rate", XLabel: label, Unit: true, Series: []plot.Series{
			{Name: "training", Points: pass, Smooth: true}, {Name: "validation", Points: validation, Marks: true},
		}}},
		{"reward", plot.Chart{Title: "Mean reward of each step's rollouts", XLabel: label, Series: byName(rewards)}},
		{"forms", plot.Chart{Title: "Pass rate by form of task", XLabel: label, Unit: true, Series: byName(forms)}},
		{"length", plot.Chart{Title: "Sampled tokens per rollout", XLabel: label, Series: []plot.Series{{Points: length, Smooth: true}}}},
		{"truncated", plot.Chart{Title: "Share of rollouts with a reply that was cut off", XLabel: label, Unit: true, Series: []plot.Series{{Points: truncated, Smooth: true}}}},
		{"speed", plot.Chart{Title: "Sampled tokens per second", XLabel: label, Series: []plot.Series{{Points: speed, Smooth: true}}}},
	}, err
}

// byName are smoothed series in the order of their names.
func byName(points map[string][]plot.Point) (series []plot.Series) {
	for _, name := range slices.Sorted(maps.Keys(points)) {
		series = append(series, plot.Series{Name: name, Points: points[name], Smooth: true})
	}
	return series
}
