package grpo

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// GRPO is the algorithm. Make it with [New].
type GRPO struct {
	cfg     Config
	summary algorithm.Summary
}

var _ agl.Algorithm = (*GRPO)(nil)

// New makes the algorithm. A Config out of range is agl.ErrInvalid and names the field.
func New(cfg Config) (*GRPO, error) {
	logged := cfg.Progress.OnWarning == nil
	cfg = cfg.withDefaults()
	if logged {
		cfg.Progress.OnWarning = func(w algorithm.Warning) { cfg.Logger.Warn(w.Message, "kind", w.Kind, "step", w.Step) }
	}
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &GRPO{cfg: cfg}, nil
}

// Summary returns the result of the last Run, even if it failed. It must not be called during a Run.
func (g *GRPO) Summary() algorithm.Summary { return g.summary }

// LearnsFromCalls reports that a run without model calls learns nothing.
func (*GRPO) LearnsFromCalls() bool { return true }

// Run trains until Config.Steps steps are done, those of a checkpoint in Config.OutDir included. Runners must take the
// rollouts. It needs a train dataset unless there is a Source, and uses the validation dataset if there is one.
//
// When ctx ends, Run returns its error; outstanding rollouts are cancelled in the store and the last checkpoint stays
// intact. It makes a checkpoint of the steps done. If the weights are changing, the step under way is one of these, unless the engine takes
// more than ten seconds, or rollouts are missing for a later of Async.Minibatches. A checkpoint of other
// settings is agl.ErrConflict. If every model call of a step was recorded without token ids or log-probabilities, Run returns
// agl.ErrIllegalState: the next step would be the same.
func (g *GRPO) Run(ctx context.Context, in agl.AlgorithmInput) (err error) {
	g.summary = algorithm.Summary{}
	r := &trainingRun{cfg: g.cfg, source: g.cfg.Source, warned: map[string]bool{}, earned: map[string]bool{}}
	defer func() {
		err = errors.Join(err, r.close(context.WithoutCancel(ctx)))
		g.summary = r.session.Summary()
	}()
	if err := r.open(ctx, in); err != nil {
		return fmt.Errorf("grpo: %w", err)
	}
	for step := r.session.Step + 1; step <= r.cfg.Steps; step++ {
		if err := r.trainStep(ctx, step); err != nil {
			return fmt.Errorf("grpo: step %d: %w", step, err)
		}
	}
	return nil
}

// trainingRun is one Run.
type trainingRun struct {
	cfg     Config
	source  Source
	session *algorithm.Session
	feeder  feeder // nil before open is done
	roles   []*trainee
	warned  map[string]bool // by role and kind
	earned  map[string]bool // roles of which a step had a reward
}

// feeder supplies the groups of each step.
type feeder interface {
	start(ctx context.Context)
	// collect waits for the groups of a step. They stay with the feeder until trained.
	collect(ctx context.Context, step int) (stepBatch, error)
	trained(ctx context.Context)
	// save returns what a checkpoint holds: the position in the tasks or rollouts, and the groups
	// under way.
	save() (position jsontext.Value, underWay *savedPump, err error)
	close(ctx context.Context)
}

// ownState has GRPO's own members of a checkpoint.
type ownState struct {
	Source jsontext.Value `json:"source"`
	Async  *savedPump     `json:"async,omitzero"`
	// Report is that of the last step if its validation was interrupted.
	Report *StepReport `json:"report,omitzero"`
}

// open makes everything ready for the next step.
func (r *trainingRun) open(ctx context.Context, in agl.AlgorithmInput) (err error) {
	switch {
	case r.source != nil || r.cfg.Live != nil:
	case r.cfg.Curriculum != nil:
		r.source, err = newCurriculumSource(in.Train, r.cfg.Seed, r.cfg.PassReward, *r.cfg.Curriculum)
	default:
		r.source, err = NewDatasetSource(in.Train, r.cfg.Seed)
	}
	if err != nil {
		return err
	}
	can, err := algorithm.CheckEngine(ctx, r.cfg.Service, r.cfg.Losses(), r.cfg.InitialWeights, r.cfg.Logger)
	if err != nil {
		return err
	}
	const single = "the engine averages losses over all data since the last optimizer step, so that a step has one gradient"
	switch {
	case !can.SingleGradient:
	case r.cfg.Anchor != nil:
		return agl.Errorf(agl.CodeUnimplemented, "anchor: given, must be left out: "+single)
	case r.cfg.parts() > r.cfg.Minibatches:
		return agl.Errorf(agl.CodeUnimplemented, "async.minibatches: got %d, must be at most minibatches, %d: "+single, r.cfg.parts(), r.cfg.Minibatches)
	}
	tasks := "live"
	if r.source != nil {
		tasks = r.source.Fingerprint()
	}
	identity := r.cfg.identity(tasks)
	if r.cfg.Async.MaxStaleness > 0 && !can.ImmutableSnapshots {
		r.warnOnce("", algorithm.Warning{Kind: WarnSynchronous, Message: fmt.Sprintf(
			"the engine changes snapshots that it has published, so sampling cannot run ahead of training: max_staleness is 0 instead of %d", r.cfg.Async.MaxStaleness)})
		r.cfg.Async.MaxStaleness = 0
	}
	var pinned func() []string
	if r.cfg.Async.Pin == PinRollout {
		pinned = r.pinned
	}
	r.session, err = algorithm.OpenSession(ctx, algorithm.SessionParams{
		Pinned:    pinned,
		Algorithm: "grpo", Input: in, RunConfig: r.cfg.RunConfig, Training: r.cfg.TrainingConfig,
		Roles: r.cfg.Roles[min(1, len(r.cfg.Roles)):], Identity: identity, Steps: r.cfg.Steps, State: func() (any, error) { return r.state() }, Release: r.cfg.Live.release(),
		KeepVersions: r.cfg.Live != nil,
	})
	if err != nil {
		return err
	}
	r.roles = traineesOf(r.cfg, r.session)
	for _, role := range r.roles {
		if err := role.open(ctx); err != nil {
			return role.failed(err)
		}
	}
	c := collector{cfg: r.cfg, session: r.session, source: r.source, roles: r.roles}
	var own ownState
	if r.session.Resumed {
		err = json.Unmarshal(r.session.Own, &own)
	}
	if err == nil {
		r.feeder, err = newFeeder(c, in, own)
	}
	if err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", r.session.Step, err)
	}
	r.feeder.start(ctx)
	err = r.session.Begin(ctx, func(v *algorithm.Report, took time.Duration) any {
		return StepReport{
			Steps: r.cfg.reported(), ResourcesID: r.session.ResourcesID, Masked: map[algorithm.Mask]int{}, Validation: v,
			Seconds: Seconds{Validate: took.Seconds(), Total: took.Seconds()},
		}
	})
	if err != nil || own.Report == nil {
		return err
	}
	own.Report.Steps = r.cfg.reported()
	return r.endStep(ctx, *own.Report, true)
}

// pinned returns the resources of the rollouts that are running.
func (r *trainingRun) pinned() []string {
	p, ok := r.feeder.(*pump)
	if !ok { // not open yet
		return nil
	}
	return p.pinned()
}

// newFeeder opens the feeder, at the position of a checkpoint if there is one.
func newFeeder(c collector, in agl.AlgorithmInput, own ownState) (feeder, error) {
	if c.cfg.Live != nil {
		return newLive(c, own.Source)
	}
	if c.session.Resumed {
		if err := c.source.Restore(own.Source); err != nil {
			return nil, err
		}
	}
	return newPump(c, in, own.Async)
}

// state returns GRPO's own members of a checkpoint.
func (r *trainingRun) state() (own ownState, err error) {
	own.Source, own.Async, err = r.feeder.save()
	return own, err
}

// trainStep makes one step, counted from 1.
func (r *trainingRun) trainStep(ctx context.Context, step int) error {
	start := time.Now()
	s := r.session
	report := StepReport{Step: step, Steps: r.cfg.reported(), ResourcesID: s.ResourcesID}
	if err := s.Follow(ctx); err != nil {
		return err
	}
	report.Candidate = s.Candidate()
	before, err := r.state()
	if err != nil {
		return err
	}
	lessons := beginLessons(r.roles, s.Generation(), &report)
	var b stepBatch
	for !b.last {
		part, err := r.feeder.collect(ctx, step)
		if err = cmp.Or(err, ctx.Err()); err == nil { // the last rollouts may have come when the run was interrupted
			err = lessons.train(ctx, part.groups)
		}
		if err != nil && ctx.Err() != nil && !lessons.stepped() {
			s.Keep(ctx, before, false)
		}
		if err != nil {
			return err
		}
		part.waited += b.waited
		b = part
	}
	tokens, updates := lessons.end()
	s.KeepTrained(ctx, step, lessons.trained(step))
	report.Learned, report.Replayed, report.Stale, report.Crowded, report.Withheld = b.learned, b.replayed, b.stale, b.crowded, b.withheld
	report.Late = b.late
	report.Dropped, report.Stopped = b.dropped, b.stopped
	report.UnusedTokens += b.unused
	report.Seconds.Rollouts = b.waited.Seconds()
	if b.sampled > 0 {
		report.TokensPerSecond = float64(tokens) / b.sampled.Seconds()
	}
	var published error
	if updates > 0 {
		mark := time.Now()
		if published = s.Publish(ctx, step); published != nil && ctx.Err() == nil {
			return published
		}
		report.Seconds.Publish = time.Since(mark).Seconds()
	}
	r.feeder.trained(ctx)
	s.Step = step
	s.Totals.Add(report.Rollouts, report.Masked)
	s.Totals.Spans += report.Spans
	s.Totals.Tokens += tokens
	report.Seconds.Total = time.Since(start).Seconds()
	if published != nil { // interrupted
		r.keepStep(ctx, report)
		return published
	}
	return r.endStep(ctx, report, step == r.cfg.Steps || step%r.cfg.CheckpointEvery == 0)
}

// endStep ends a step whose weights are published: it validates, reports and, with checkpoint, makes a checkpoint. If it is interrupted, the
// run that resumes ends the step; likewise if the run was interrupted as it published them.
func (r *trainingRun) endStep(ctx context.Context, report StepReport, checkpoint bool) error {
	start := time.Now()
	if err := r.validate(ctx, &report, checkpoint); err != nil {
		return err
	}
	unended := report
	if err := r.session.Commit(ctx, checkpoint, func(saving time.Duration) any {
		report.Seconds.Checkpoint = saving.Seconds()
		report.Seconds.Total += time.Since(start).Seconds()
		return report
	}); err != nil {
		if ctx.Err() != nil {
			r.keepStep(ctx, unended)
		}
		return err
	}
	r.warn(report)
	r.cfg.OnStep(report)
	return nil
}

// validate validates the weights after a step, if it is time for that. Where sampling runs ahead, training goes on meanwhile, and the
// result is in the line of a later step: at the latest of the next checkpoint, and of the next validation.
func (r *trainingRun) validate(ctx context.Context, report *StepReport, checkpoint bool) (err error) {
	s, start := r.session, time.Now()
	last, every := report.Step == r.cfg.Steps, r.cfg.ValidateEvery
	due := last || every > 0 && report.Step%every == 0
	beside, err := s.EndValidation(due || checkpoint)
	if err != nil {
		return err
	}
	if beside != nil {
		report.Beside = beside
	}
	switch {
	case !due, report.Validation != nil: // the latter was interrupted after its validation
	case !last && r.cfg.Async.MaxStaleness > 0 && r.cfg.Publisher != nil:
		err = s.StartValidation(ctx)
	default:
		report.Validation, _, err = s.Validate(ctx, algorithm.Tag{Step: report.Step})
	}
	if err != nil && ctx.Err() != nil {
		r.keepStep(ctx, *report)
	}
	if beside != nil || report.Validation != nil {
		report.Seconds.Validate = time.Since(start).Seconds()
	}
	return err
}

// keepStep makes a checkpoint of a run that is interrupted in a step whose weights are trained.
func (r *trainingRun) keepStep(ctx context.Context, report StepReport) {
	if own, err := r.state(); err == nil {
		own.Report = &report
		r.session.Keep(ctx, own, true)
	}
}

// warn reports each kind of warning once.
func (r *trainingRun) warn(report StepReport) {
	of := func(role string, report StepReport) {
		for _, w := range r.warningsOf(role, report) {
			if role != "" {
				w.Message = "role " + role + ": " + w.Message
			}
			r.warnOnce(role, w)
		}
	}
	of(report.Role, report)
	for _, name := range slices.Sorted(maps.Keys(report.Roles)) {
		of(name, report.Roles[name])
	}
}

// warningsOf returns the warnings about a role, given what its steps have earned before.
func (r *trainingRun) warningsOf(role string, report StepReport) []algorithm.Warning {
	before := r.earned[role]
	if v := r.session.Before; v != nil {
		mean, i := v.RewardMean, max(slices.IndexFunc(r.roles, func(t *trainee) bool { return t.name == role }), 0)
		if own, ok := v.Dimensions[r.roles[i].reward]; ok {
			mean = own
		}
		before = before || mean > 0
	}
	r.earned[role] = r.earned[role] || report.RewardMean > 0
	return warnings(report, before)
}

func (r *trainingRun) warnOnce(role string, w algorithm.Warning) {
	if key := role + " " + w.Kind; !r.warned[key] {
		r.warned[key] = true
		r.cfg.Progress.OnWarning(w)
	}
}

// close releases what open has acquired.
func (r *trainingRun) close(ctx context.Context) error {
	if r.feeder != nil {
		r.feeder.close(ctx)
	}
	err := r.session.Close(ctx)
	for _, role := range r.roles {
		if role.updater.reference != nil {
			algorithm.Unload(ctx, r.cfg.Logger, role.updater.reference)
		}
	}
	return err
}
