package grpo

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/admission"
	"github.com/agl-go/agl/tinker"
)

// Config configures [New]. Fields that are not required may be zero.
type Config struct {
	algorithm.RunConfig
	// TrainingConfig.CheckpointEvery defaults to 25, and to 1 in a live run.
	algorithm.TrainingConfig
	// Roles are the agents of a rollout that are trained, each with a model of its own on the engine of TrainingConfig. They replace
	// its Model, InitialWeights, Publisher and ModelName; no roles means that these describe the only one. A live run has none. Each
	// role has its own groups, advantages and optimizer: a rollout that one role cannot be trained on still teaches the others.
	Roles []algorithm.Role
	// Source supplies the tasks; nil goes through the train dataset, in a new order each epoch.
	Source Source

	// Curriculum draws the tasks of the train dataset by learning progress, in place of a Source; nil does not.
	Curriculum *Curriculum

	// Steps is the number of steps. Required, except in a live run, which then has no end. A resumed run may have more.
	Steps int
	// PromptsPerStep is the number of tasks of a step; zero means 16.
	PromptsPerStep int
	// GroupSize is the number of rollouts of each task, at least 2; zero means 8.
	GroupSize int

	// Loss is importance_sampling (if its name is empty), ppo, cispo or dro. An engine without it is agl.ErrUnimplemented
	// before any rollout is enqueued. dro takes advantages in units of the reward: it needs PlainAdvantage or LeaveOneOut.
	Loss tinker.Loss
	// Minibatches is the number of optimizer steps over the data of a step; zero means 1, which keeps the update on-policy. See also
	// Async.Minibatches.
	Minibatches int
	// Baseline is what a rollout's reward is compared with; empty means GroupMean.
	Baseline Baseline
	// PlainAdvantage leaves out the division by the standard deviation, as Dr. GRPO
	// does (arXiv:2503.20783, §3.2). LeaveOneOut never divides.
	PlainAdvantage bool
	// Credit is what a reward is credited to; empty means CreditTrajectory.
	Credit Credit
	// Discount is the γ of CreditTurn, in (0, 1]; zero means 1. CreditTrajectory takes
	// none.
	Discount float64
	// KL holds the model near a reference.
	KL KL
	// Anchor mixes demonstrations into every step; nil does not.
	Anchor *Anchor
	// MaskTruncated leaves rollouts with a truncated reply out of the loss: the overlong filtering of DAPO
	// (arXiv:2503.14476, §3.4). Their rewards still count in the group, so that a truncated rollout that failed raises the
	// advantage of the others. By default truncated rollouts are trained on like all others, which teaches the model to
	// finish within the limit.
	MaskTruncated bool
	// Overlong lowers the reward of long replies.
	Overlong Overlong
	// Async lets sampling run ahead of training.
	Async Async
	// Live makes the run learn from rollouts that others start; PromptsPerStep and GroupSize are then not used. Nil
	// makes it start its own.
	Live *Live
	// Correction corrects for samples of other weights, beyond the ratio of the loss.
	Correction Correction
	// DynamicSampling drops groups whose rewards are all equal and samples others in their place, as DAPO does (arXiv:2503.14476,
	// §3.2): every group of a step has an advantage. At most ten times the groups of a step are dropped for it.
	DynamicSampling bool
	// MaxGroupSize lets hard groups grow: while all rewards of a group are equal and below PassReward, it gets as many rollouts again, up to
	// this number. GroupSize can then be small: easy tasks need few rollouts, hard ones get many, as with the adaptive rollouts of AR3PO (Zhang
	// et al. 2025, arXiv:2509.25808) and Reinforce-Ada (Xiong et al. 2025, arXiv:2510.04996). Zero means GroupSize.
	MaxGroupSize int
	// LengthNormalization gives every rollout the same weight, whatever its number
	// of sampled tokens: the 1/|oᵢ| of DeepSeekMath's eq. 3.
	LengthNormalization bool

	// ValidateEvery is the number of steps between validations; zero validates only
	// before the first step and after the last.
	ValidateEvery int
	// OnStep is called after each step; nil does nothing.
	OnStep func(StepReport)
}

// Async lets sampling run ahead of training. The zero value is the synchronous run: sample, train, sample again.
type Async struct {
	// MaxStaleness is by how many versions sampling may run ahead. Groups are admitted only if they will be trained on within it,
	// so nothing that was sampled is thrown away. On an engine whose snapshots change it is 0.
	MaxStaleness int
	// Pin is which version of the model answers a rollout's calls; empty means PinCall.
	Pin Pin
	// Concurrency is the number of groups that may be open at once; zero means all that MaxStaleness admits.
	Concurrency int
	// OnStale is what happens to groups that would be older than MaxStaleness all the same, because they take long; empty means
	// admission.Train.
	OnStale admission.OnStale
	// MinViable is the number of rollouts that must count, or the group is dropped and another task is sampled in its place. Failures
	// of the agent count, those of the infrastructure do not. Zero drops none.
	MinViable int
	// GroupTimeout is how long a group may take, from when it is enqueued; the rollouts that have not finished are then cancelled, and
	// the others compared among themselves. Zero waits.
	GroupTimeout time.Duration
	// Oversample is the number of rollouts of a group beyond GroupSize. As soon as GroupSize rollouts that count have finished,
	// the others are cancelled. These appear only in StepReport.Stopped and UnusedTokens.
	Oversample int
	// Minibatches is the number of parts in which a step takes its groups: the gradient of the oldest ready ones is computed while the
	// others are being sampled. Config.Minibatches is the number of optimizer steps that the parts make. It must divide
	// Async.Minibatches, which must divide PromptsPerStep. The loss of a token is divided by the tokens of its minibatch. Which groups
	// a minibatch has depends on which are ready. Zero means 1, which waits for all.
	Minibatches int
}

// Pin is which version of the model answers the calls of a rollout.
type Pin string

// The pins.
const (
	// PinCall: each call goes to the newest version, so that a rollout may have samples of several.
	PinCall Pin = "call"
	// PinRollout: all calls of a rollout go to the version that was the newest when it was enqueued, so the Publisher serves
	// several versions at once (algorithm.Publication.Pinned). A call that another version answered masks the rollout.
	PinRollout Pin = "rollout"
)

// Pins returns all pins.
func Pins() []Pin { return []Pin{PinCall, PinRollout} }

// parts is the number of parts in which a step's data come.
func (c Config) parts() int { return max(c.Async.Minibatches, 1) }

// String identifies the settings in checkpoints; empty for the defaults.
func (a Async) String() string {
	if a == (Async{OnStale: admission.Train, Pin: PinCall}) {
		return ""
	}
	text := fmt.Sprintf("max_staleness=%d concurrency=%d on_stale=%s min_viable=%d group_timeout=%v", a.MaxStaleness, a.Concurrency, a.OnStale, a.MinViable, a.GroupTimeout)
	if a.Oversample > 0 {
		text += fmt.Sprintf(" oversample=%d", a.Oversample)
	}
	if a.Pin != PinCall {
		text += fmt.Sprintf(" pin=%s", a.Pin)
	}
	if a.Minibatches > 0 {
		text += fmt.Sprintf(" minibatches=%d", a.Minibatches)
	}
	return text
}

func (c Config) withDefaults() Config {
	if len(c.Roles) > 0 {
		schedule := c.Schedule // of the roles that have none
		c = c.of(c.Roles[0])
		c.Schedule = schedule
	}
	c.RunConfig, c.TrainingConfig = c.RunConfig.WithDefaults(), c.TrainingConfig.WithDefaults()
	c.PromptsPerStep = cmp.Or(c.PromptsPerStep, 16)
	c.GroupSize = cmp.Or(c.GroupSize, 8)
	c.MaxGroupSize = cmp.Or(c.MaxGroupSize, c.GroupSize)
	c.Minibatches = cmp.Or(c.Minibatches, 1)
	if c.Live != nil { // a live run keeps every step: users do not repeat their sessions
		c.CheckpointEvery, c.Steps = cmp.Or(c.CheckpointEvery, 1), cmp.Or(c.Steps, endless)
	}
	if start := c.Progress.OnStart; c.reported() == 0 {
		c.Progress.OnStart = func(s algorithm.Start) {
			s.Steps = 0
			start(s)
		}
	}
	c.CheckpointEvery = cmp.Or(c.CheckpointEvery, 25)
	c.Loss.Name = c.Losses()[0]
	c.Baseline = cmp.Or(c.Baseline, GroupMean)
	c.Async.OnStale, c.Async.Pin = cmp.Or(c.Async.OnStale, admission.Train), cmp.Or(c.Async.Pin, PinCall)
	if c.Async.Minibatches == 1 {
		c.Async.Minibatches = 0
	}
	if c.Overlong.Limit != 0 {
		c.Overlong.Penalty = cmp.Or(c.Overlong.Penalty, 1)
	}
	if a := c.Anchor; a != nil {
		c.Anchor = &Anchor{Data: a.Data, PerStep: cmp.Or(a.PerStep, 8), Weight: cmp.Or(a.Weight, 0.1)}
	}
	if c.Live = c.Live.withDefaults(); c.Live != nil && c.Live.Replay.Times > 0 {
		c.Correction.Kind = cmp.Or(c.Correction.Kind, TokenTIS)
	}
	c.Credit, c.Discount = cmp.Or(c.Credit, CreditTrajectory), cmp.Or(c.Discount, 1)
	if c.OnStep == nil {
		c.OnStep = func(StepReport) {}
	}
	return c
}

// endless is the number of steps of a live run without an end, which is reported as 0.
const endless = math.MaxInt32

// reported is the number of steps in reports.
func (c Config) reported() int {
	if c.Live != nil && c.Steps == endless {
		return 0
	}
	return c.Steps
}

// of returns the settings of a role.
func (c Config) of(r algorithm.Role) Config {
	c.Model, c.InitialWeights, c.Publisher, c.ModelName = r.Model, r.InitialWeights, r.Publisher, r.ModelName
	if r.Schedule.Peak != 0 {
		c.Schedule = r.Schedule
	}
	return c
}

// Losses returns those that the engine must have: Loss and, for the reference of KL, cross_entropy.
func (c Config) Losses() []tinker.LossName {
	losses := []tinker.LossName{cmp.Or(c.Loss.Name, tinker.ImportanceSampling)}
	if c.KL.Coefficient != 0 || c.Anchor != nil {
		losses = append(losses, tinker.CrossEntropy)
	}
	return losses
}

// reference is the checkpoint of the reference; empty is a new model.
func (c Config) reference() string { return cmp.Or(c.KL.Reference, c.InitialWeights) }

func (c Config) validate() error {
	if err := cmp.Or(c.TrainingConfig.Validate(), c.RunConfig.Validate(), c.Loss.Validate(), c.Correction.validate(), c.Overlong.validate(), c.Anchor.validate(), c.Live.validate(), algorithm.AtLeast(
		algorithm.Minimum{Field: "Steps", Value: c.Steps, Least: 1},
		algorithm.Minimum{Field: "PromptsPerStep", Value: c.PromptsPerStep, Least: 1},
		algorithm.Minimum{Field: "GroupSize", Value: c.GroupSize, Least: 2},
		algorithm.Minimum{Field: "Minibatches", Value: c.Minibatches, Least: 1},
		algorithm.Minimum{Field: "ValidateEvery", Value: c.ValidateEvery},
		algorithm.Minimum{Field: "Async.MaxStaleness", Value: c.Async.MaxStaleness},
		algorithm.Minimum{Field: "Async.Concurrency", Value: c.Async.Concurrency},
		algorithm.Minimum{Field: "Async.MinViable", Value: c.Async.MinViable},
		algorithm.Minimum{Field: "Async.Oversample", Value: c.Async.Oversample},
		algorithm.Minimum{Field: "Async.Minibatches", Value: c.Async.Minibatches},
	)); err != nil {
		return invalid("%w", err)
	}
	switch {
	case c.Loss.Name == tinker.CrossEntropy:
		return invalid("Loss is %q; allowed are %q", c.Loss.Name, tinker.LossNames()[1:])
	case !c.Loss.Name.Clips() && (c.Loss.ClipLow != 0 || c.Loss.ClipHigh != 0):
		return invalid("Loss.ClipLow and ClipHigh are %v and %v; %q takes none", c.Loss.ClipLow, c.Loss.ClipHigh, c.Loss.Name)
	case c.Loss.Name != tinker.DRO && c.Loss.Beta != 0:
		return invalid("Loss.Beta is %v; %q takes none", c.Loss.Beta, c.Loss.Name)
	case !slices.Contains(Baselines(), c.Baseline):
		return invalid("Baseline is %q; allowed are %q", c.Baseline, Baselines())
	case !slices.Contains(admission.OnStales(), c.Async.OnStale):
		return invalid("Async.OnStale is %q; allowed are %q", c.Async.OnStale, admission.OnStales())
	case !slices.Contains(Pins(), c.Async.Pin):
		return invalid("Async.Pin is %q; allowed are %q", c.Async.Pin, Pins())
	case c.Async.MinViable > c.GroupSize:
		return invalid("Async.MinViable is %d, must be at most GroupSize (%d)", c.Async.MinViable, c.GroupSize)
	case c.MaxGroupSize < c.GroupSize:
		return invalid("MaxGroupSize is %d, must be at least GroupSize (%d)", c.MaxGroupSize, c.GroupSize)
	case c.MaxGroupSize > c.GroupSize && c.Async.Oversample > 0:
		return invalid("MaxGroupSize is %d with Async.Oversample %d; a group either grows or stops", c.MaxGroupSize, c.Async.Oversample)
	case c.Async.GroupTimeout < 0:
		return invalid("Async.GroupTimeout is %v, must not be negative", c.Async.GroupTimeout)
	case c.Live == nil && c.PromptsPerStep%c.parts() != 0:
		return invalid("Async.Minibatches is %d, must divide PromptsPerStep (%d)", c.Async.Minibatches, c.PromptsPerStep)
	case c.Async.Minibatches > 0 && c.Async.Minibatches%c.Minibatches != 0:
		return invalid("Async.Minibatches is %d, must be a multiple of Minibatches (%d), the optimizer steps that they make", c.Async.Minibatches, c.Minibatches)
	case !slices.Contains(Credits(), c.Credit):
		return invalid("Credit is %q; allowed are %q", c.Credit, Credits())
	case !(c.Discount > 0 && c.Discount <= 1): // NaN, too
		return invalid("Discount is %v, must be above 0 and at most 1", c.Discount)
	case c.Discount != 1 && c.Credit != CreditTurn:
		return invalid("Discount is %v with the Credit %q; only %q takes one", c.Discount, c.Credit, CreditTurn)
	case c.Loss.Name == tinker.DRO && c.Baseline != LeaveOneOut && !c.PlainAdvantage:
		return invalid("Loss is %q, which needs advantages without normalization: PlainAdvantage or the Baseline %q", tinker.DRO, LeaveOneOut)
	case !(c.KL.Coefficient >= 0) || math.IsInf(c.KL.Coefficient, 0):
		return invalid("KL.Coefficient is %v, must be a finite number ≥ 0", c.KL.Coefficient)
	case c.KL.Reference != "" && c.KL.Coefficient == 0:
		return invalid("KL.Reference is %q without a Coefficient", c.KL.Reference)
	}
	if e := c.Curriculum; e != nil {
		switch {
		case c.Source != nil || c.Live != nil:
			return invalid("Curriculum is given together with a Source or Live, which bring their own tasks")
		case !(e.Explore >= 0 && e.Explore <= 1):
			return invalid("Curriculum.Explore is %v, must be from 0 to 1", e.Explore)
		}
	}
	if err := cmp.Or(c.validateSize(), c.validateRoles(), c.validateLive()); err != nil {
		return err
	}
	if p, err := tinker.ParsePath(c.KL.Reference); c.KL.Reference != "" && (err != nil || p.Kind != tinker.KindCheckpoint) {
		return invalid("KL.Reference is %q, must be a checkpoint, tinker://<model>/weights/<name>", c.KL.Reference)
	}
	return nil
}

// validateSize refuses more rollouts than fit into memory. The products are of floats: those of integers could overflow.
func (c Config) validateSize() error {
	group := float64(c.GroupSize) + float64(c.Async.Oversample)
	if n := float64(c.PromptsPerStep) * group; n > algorithm.MaxRollouts {
		return invalid("PromptsPerStep (%d) times GroupSize (%d) and Async.Oversample (%d) is %.0f rollouts, must be at most %d", c.PromptsPerStep, c.GroupSize, c.Async.Oversample, n, algorithm.MaxRollouts)
	}
	open := float64(c.PromptsPerStep) * (1 + float64(min(c.Async.MaxStaleness, c.Steps-1)))
	if c.Async.Concurrency > 0 {
		open = min(open, float64(c.Async.Concurrency))
	}
	if n := open * group; n > algorithm.MaxRollouts {
		return invalid("Async.MaxStaleness is %d, with which %.0f rollouts may be open at once, must be at most %d; Async.Concurrency bounds the open groups", c.Async.MaxStaleness, n, algorithm.MaxRollouts)
	}
	return nil
}

// validateLive refuses settings that a live run does not have.
func (c Config) validateLive() error {
	if c.Live == nil {
		return nil
	}
	switch {
	case c.Live.Releaser != nil && c.Publisher == nil:
		return invalid("Live.Releaser is given without a Publisher, which serves the weights that the run begins with")
	case len(c.Roles) > 0:
		return invalid("Live and Roles are both given; a live run trains one model")
	case c.Source != nil:
		return invalid("Live and Source are both given; a live run starts no rollouts")
	case c.Credit != CreditTrajectory:
		return invalid("Credit is %q, must be %q in a live run", c.Credit, CreditTrajectory)
	case c.Async != (Async{OnStale: c.Async.OnStale, Pin: PinCall}) || c.DynamicSampling || c.MaxGroupSize > c.GroupSize:
		return invalid("Async, DynamicSampling or MaxGroupSize is given, which a live run does not have")
	}
	return nil
}

// roleName is the form of the names of roles.
var roleName = regexp.MustCompile(`^[A-Za-z0-9_-]+$`)

func (c Config) validateRoles() error {
	for i, r := range c.Roles {
		field := fmt.Sprintf("Roles[%d]", i)
		before := c.Roles[:i]
		switch {
		case !roleName.MatchString(r.Name):
			return invalid("%s.Name is %q, must be letters, digits, _ and -", field, r.Name)
		case slices.ContainsFunc(before, func(b algorithm.Role) bool { return b.Name == r.Name }):
			return invalid("%s.Name is %q, the name of another role", field, r.Name)
		case r.ModelName == "":
			return invalid("%s.ModelName is empty; the calls of a role are those that ask for its model", field)
		case slices.ContainsFunc(before, func(b algorithm.Role) bool { return b.ModelName == r.ModelName }):
			return invalid("%s.ModelName is %q, the model of another role", field, r.ModelName)
		case len(c.Roles) > 1 && r.Publisher == nil:
			return invalid("%s.Publisher is nil; with several roles each needs one, so that calls carry the version of its weights", field)
		}
		if err := r.Schedule.Validate(); r.Schedule.Peak != 0 && err != nil {
			return invalid("%s: %w", field, err)
		}
	}
	if len(c.Roles) > 1 && c.KL.Reference != "" {
		return invalid("KL.Reference is %q with %d Roles; the reference of each is its own InitialWeights", c.KL.Reference, len(c.Roles))
	}
	return nil
}

// identity is what a checkpoint must agree on before a run resumes from it.
func (c Config) identity(tasks string) map[string]string {
	roles, schedules := c.rolesIdentity(), c.roleSchedules()
	if len(c.Roles) > 0 {
		c = c.of(c.Roles[0])
	}
	loss := c.Loss.WithDefaults()
	losses := fmt.Sprintf("%s clip=[%v, %v] plain_advantage=%t length_normalization=%t", loss.Name, loss.ClipLow, loss.ClipHigh, c.PlainAdvantage, c.LengthNormalization)
	if loss.Name == tinker.DRO {
		losses += fmt.Sprintf(" beta=%v", loss.Beta)
	}
	// Settings that are off are left out, so that checkpoints from before these settings existed still match.
	if c.Baseline != GroupMean {
		losses += fmt.Sprintf(" baseline=%s", c.Baseline)
	}
	if c.Credit != CreditTrajectory {
		losses += fmt.Sprintf(" credit=%s discount=%v", c.Credit, c.Discount)
	}
	if c.KL.Coefficient != 0 {
		losses += fmt.Sprintf(" kl=%v reference=%q", c.KL.Coefficient, c.reference())
	}
	if fix := c.Correction.defaults(); fix.Kind != "" {
		losses += fmt.Sprintf(" correction=%s [%v, %v]", fix.Kind, fix.Low, fix.High)
	}
	if c.Overlong != (Overlong{}) {
		losses += fmt.Sprintf(" overlong=%+v", c.Overlong)
	}
	if c.Anchor != nil {
		losses += fmt.Sprintf(" anchor=%v×%d of %d", c.Anchor.Weight, c.Anchor.PerStep, len(c.Anchor.Data))
	}
	if c.MaskTruncated {
		losses += " mask_truncated=true"
	}
	c.Adam = c.Adam.WithDefaults()
	id := c.Identity("grpo", tasks)
	id["schedule"] = c.scheduleIdentity()
	id["seed"] = fmt.Sprint(c.Seed)
	id["batch"] = fmt.Sprintf("prompts=%d group=%d minibatches=%d", c.PromptsPerStep, c.GroupSize, c.Minibatches)
	if async := c.Async.String(); async != "" {
		id["async"] = async
	}
	if c.MaxGroupSize > c.GroupSize {
		id["batch"] += fmt.Sprintf(" max_group=%d", c.MaxGroupSize)
	}
	if c.DynamicSampling {
		id["batch"] += " dynamic_sampling=true"
	}
	id["loss"] = losses
	if roles != "" {
		id["roles"], id[algorithm.IdentityRoleSchedules] = roles, schedules
	}
	return id
}

// scheduleIdentity is the schedule with the number of steps, if the rate depends on it.
func (c Config) scheduleIdentity() string {
	if c.Schedule.Constant() {
		return c.Schedule.String()
	}
	return fmt.Sprintf("%s over %d steps", c.Schedule, c.Steps)
}

// roleSchedules are the schedules of all roles, which have their own or that of the algorithm.
func (c Config) roleSchedules() string {
	all := make([]string, len(c.Roles))
	for i, r := range c.Roles {
		all[i] = r.Name + " " + c.of(r).scheduleIdentity()
	}
	return strings.Join(all, "; ")
}

// rolesIdentity is what a checkpoint must agree on besides what it would without roles.
func (c Config) rolesIdentity() string {
	all := make([]string, len(c.Roles))
	for i, r := range c.Roles {
		all[i] = fmt.Sprintf("%s model=%q %s lora_rank=%d seed=%d reward=%q schedule=%s",
			r.Name, r.ModelName, r.Model.BaseModel, r.Model.LoRARank, r.Model.Seed, r.Reward, r.Schedule)
	}
	return strings.Join(all, "; ")
}

func invalid(format string, args ...any) error {
	return agl.Errorf(agl.CodeInvalid, "grpo: "+format, args...)
}
