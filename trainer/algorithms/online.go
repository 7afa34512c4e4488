package algorithms

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/grpo"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/release"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/keys"
)

// Online is a live run of package grpo with its settings in a run file: it learns from
// rollouts that others start, such as the sessions of a service.
type Online struct {
	GRPO

	live   grpo.Live
	anchor grpo.Anchor
	demos  string // the anchor's file; empty is no anchor
	// release is how candidates are tried; nil gives new weights to all users.
	release *release.Proposal
	// redaction says which sessions may be learned from; nil lets all pass.
	redaction *Redaction
}

func onlineKeys(dir string) (yamlfile.Value, Algorithm) {
	a := &Online{}
	key, c, l := yamlfile.Key, &a.Config, &a.live
	var metadata []yamlfile.Entry[string]
	fields := []yamlfile.Field{
		key("steps", "Number of steps; by default it goes on until it is stopped.", keys.Count(&c.Steps)),
		key("rollouts", "Rollouts of a step.", keys.Count(&l.Rollouts)).Default(64),
		key("max_wait", "How long a step waits for them; then it takes fewer.", yamlfile.Duration(&l.MaxWait)).Default("10m"),
		key("least", "The fewest rollouts of a step; by default a quarter of `rollouts`.", keys.Count(&l.Least)),
		metadataKey(&metadata),
		key("baseline_rate", "How much of the running baseline each rollout replaces.", yamlfile.Number(&l.Rate, yamlfile.Above(0), yamlfile.Below(1))).Default(0.02),
		key("warm", "Rollouts that a baseline needs before what it is compared with is learned from.", keys.Count(&l.Warm)).Default(8),
		key("max_staleness", "Passes over rollouts that weights of more versions ago have answered.", keys.Count(&l.MaxStaleness)).Default(8),
		perUserKey(&l.PerUser),
		redactionKey(dir, &a.redaction),
		key("anchor", "Conversations that are mixed into every step, against forgetting.", yamlfile.Mapping(
			key("file", "A JSON Lines file of conversations, as that of a warm start.", yamlfile.File(&a.demos)).Required(),
			key("per_step", "Conversations of a step.", keys.Count(&a.anchor.PerStep)).Default(8),
			key("weight", "Weight of their cross-entropy, per token, in units of the advantage.", keys.Positive(&a.anchor.Weight)).Default(0.1),
		)),
		key("replay", "Learns from sessions more than once, within `max_staleness`; `correction` is then token_tis by default.", yamlfile.Mapping(
			key("times", "How often each is learned from again at most.", keys.Count(&l.Replay.Times)).Required(),
			key("rollouts", "The most that a step replays, beside its new ones; by default half of `rollouts`.", keys.Count(&l.Replay.Rollouts)),
		)),
		key("release", "Tries what was learned on a share of the sessions, as a release whose gates decide; without it, everybody gets it after each step.", yamlfile.Via(func(p *release.Proposal) yamlfile.Value {
			return releaseKeys(p, key("every", "Steps between candidates, at most `max_staleness`, and its value by default if that is less.", keys.Count(&l.ReleaseEvery)).Default(4))
		}, func(p release.Proposal) { a.release = &p })),
		key("loss", "The loss, or its name alone.", loss(&c.Loss)).Default("importance_sampling"),
		key("correction", "How the loss corrects for samples of older weights beyond its own ratio, or the kind alone; it takes a forward pass a step.", correction(&c.Correction)),
		key("kl", "A penalty on tokens that became likelier than under a reference, or its coefficient alone.", penalty(&c.KL)).Default(0),
		key("plain_advantage", "Leaves out the division by the baseline's standard deviation.", yamlfile.Bool(&c.PlainAdvantage)).Default(false),
		key("pass_reward", "The reward from which a rollout counts as passed.", keys.Positive(&c.PassReward)).Default(1),
		key("processed_logprobs", "As in `grpo`.", yamlfile.Bool(&c.ProcessedLogprobs)).Default(false),
		key("checkpoint_every", "Steps between checkpoints. A run that is killed learns again from what came after the last.", keys.Count(&c.CheckpointEvery)).Default(1),
	}
	fields = append(fields, keys.Rate(&c.Schedule, "If neither is given, a constant 0.001, and 0.00004 for a model with `engine.tinker.chat.folder`.")...)
	return yamlfile.Mapping(fields...).Check(keys.OneRate).Check(func(s *yamlfile.Scope) {
		l.Filter = withMetadata(metadata)
		if s.Clean() {
			s.Fail(a.check())
		}
	}), a
}

// check lets the algorithm check its settings.
func (a *Online) check() error {
	c, live := a.Config, a.live
	live.Collector = struct{ agl.Collector }{} // which is not called
	c.Live = &live
	c.Service = standIn
	_, err := grpo.New(c)
	return err
}

// Name implements [Algorithm].
func (*Online) Name() string { return "online" }

// Describe implements [Algorithm].
func (a *Online) Describe() string {
	if a.Steps == 0 {
		return "until it is stopped"
	}
	return display.Plural(a.Steps, "step")
}

// Needs implements [Algorithm].
func (a *Online) Needs() Needs {
	needs := a.GRPO.Needs()
	if needs.Demonstrations = a.demos; a.demos != "" {
		needs.Losses = append(needs.Losses, tinker.CrossEntropy)
	}
	needs.Roles = false
	needs.NoTasks, needs.Sessions = true, a.release != nil
	needs.Divergence = a.release != nil && slices.ContainsFunc(a.release.Gates.Guards, func(g release.Guard) bool { return g.Metric == release.MetricKL })
	return needs
}

// New implements [Algorithm].
func (a *Online) New(p Parts) (Run, error) {
	c := a.configure(p)
	if c.Steps == 0 {
		c.Schedule.Floor = c.Schedule.Peak // without an end there is nothing to fall towards
	}
	live := a.live
	if a.redaction != nil {
		live.Allow = a.redaction.allow
	}
	c.Live = &live
	ShowGRPO(&c, p.Display, p.Warn)
	return &onlineRun{file: *a, config: c, parts: p}, a.check()
}

// onlineRun is a live run, which finds its collector when it begins.
type onlineRun struct {
	file   Online
	config grpo.Config // file.Config with what the run adds
	parts  Parts
	grpo   *grpo.GRPO // nil before
}

// Run implements [agl.Algorithm].
func (r *onlineRun) Run(ctx context.Context, in agl.AlgorithmInput) (err error) {
	if in.Collector == nil {
		return agl.Errorf(agl.CodeUnimplemented, "online: the store hands out no finished rollouts")
	}
	r.config.Live.Collector = in.Collector
	if r.file.release != nil {
		r.config.Live.Releaser = r.parts.Releaser(in.Store, *r.file.release)
	}
	if r.file.demos != "" {
		if r.file.anchor.Data, err = r.parts.Demonstrations(ctx, r.file.demos); err != nil {
			return fmt.Errorf("anchor: %w", err)
		}
		r.config.Anchor = &r.file.anchor
	}
	if r.grpo, err = grpo.New(r.config); err != nil {
		return err
	}
	return r.grpo.Run(ctx, in)
}

// Result implements [Run].
func (r *onlineRun) Result() Result {
	if r.grpo == nil {
		return Result{Summary: GRPOSummary{TrainingSummary: summarize(algorithm.Summary{})}}
	}
	result := (&grpoRun{r.grpo, r.config.OutDir}).Result()
	result.Report = strings.Replace(result.Report, "tokens sampled in training.", "tokens learned from.", 1)
	return result
}
