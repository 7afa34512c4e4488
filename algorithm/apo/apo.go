package apo

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"text/template"

	"golang.org/x/sync/errgroup"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/internal/panics"
)

// APO is the algorithm. Make it with [New].
type APO struct {
	cfg              Config
	critiques, edits []*template.Template
	report           Report
}

var _ agl.Algorithm = (*APO)(nil)

// New makes the algorithm. A Config out of range is agl.ErrInvalid.
func New(cfg Config) (*APO, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	a := &APO{cfg: cfg}
	var err error
	if a.critiques, err = parseRequests("CritiquePrompts", cfg.CritiquePrompts, CritiqueData{Experiments: []Experiment{{}}}); err != nil {
		return nil, err
	}
	a.edits, err = parseRequests("EditPrompts", cfg.EditPrompts, EditData{})
	return a, err
}

// Report returns the result of the last Run, as far as it got. It must not be called during a Run.
func (a *APO) Report() Report { return a.report }

// Run searches for better prompt templates than those of the initial resources. The resources must have at least one
// template, and each dataset at least one task. Runners must take the rollouts. Every candidate is stored as a resources
// bundle of its own; in the end the best one becomes the latest. A spent budget is not an error; a model that fails is.
// With Config.OutDir, a later Run resumes after either.
func (a *APO) Run(ctx context.Context, in agl.AlgorithmInput) (err error) {
	a.report = Report{}
	s := &search{APO: a, in: in}
	defer func() { err = errors.Join(err, s.session.Close(ctx)) }()
	if err := s.open(ctx); err != nil {
		return fmt.Errorf("apo: %w", err)
	}
	do := s.search
	if s.cfg.Live != nil {
		do = s.live
	}
	if err := do(ctx); err != nil {
		return fmt.Errorf("apo: %w", errors.Join(err, s.writeReport()))
	}
	return nil
}

// search is one Run.
type search struct {
	*APO

	in      agl.AlgorithmInput
	session *algorithm.Session
	journal *journal
	editor  *editor

	seed       *Candidate
	candidates []*Candidate // the seed first, then in the order in which they were made
	beam       []*Candidate // best first
	best       *Candidate
}

// open checks the input and opens the session.
func (s *search) open(ctx context.Context) error {
	switch {
	case s.in.Store == nil:
		return agl.Errorf(agl.CodeInvalid, "the input has no store")
	case s.cfg.Live != nil:
		if err := s.cfg.Live.check(s.in); err != nil {
			return err
		}
	case s.in.Train == nil || s.in.Train.Len() == 0:
		return agl.Errorf(agl.CodeInvalid, "the training dataset is empty; critiques need tasks")
	case s.in.Val == nil || s.in.Val.Len() == 0:
		return agl.Errorf(agl.CodeInvalid, "the validation dataset is empty; candidates are compared on it")
	}
	if s.cfg.Live == nil {
		if err := algorithm.AtMost(algorithm.MaxRollouts, algorithm.Factor{Field: "validation tasks", Value: s.in.Val.Len()}, algorithm.Factor{Field: "FinalSamples", Value: s.cfg.FinalSamples}); err != nil {
			return err
		}
	}
	prompts := promptsOf(s.in.InitialResources)
	if prompts == nil {
		return agl.Errorf(agl.CodeInvalid, "the initial resources have no prompt_template; there is nothing to tune")
	}
	if s.cfg.Live == nil && s.in.Val.Len() < fewestPairs {
		s.cfg.Logger.Warn("the validation dataset is too small to show that a prompt is better, so the first one will stay", "tasks", s.in.Val.Len(), "needed", fewestPairs)
	}
	identity, err := s.identity(prompts)
	if err != nil {
		return err
	}
	s.journal = &journal{entries: map[string]entry{}}
	s.session, err = algorithm.OpenSession(ctx, algorithm.SessionParams{
		Algorithm: "apo", Input: s.in, RunConfig: s.cfg.RunConfig, Identity: identity, Steps: s.cfg.Rounds, Journal: s.journal.load,
	})
	if err != nil {
		return err
	}
	s.journal.append = s.session.AppendJournal
	admission := newAdmission(s.cfg.Budget)
	for _, e := range s.journal.entries {
		if c := e.Call; c != nil {
			admission.record(costOf(c.Usage, c.Price))
		}
	}
	s.editor = &editor{
		evaluator: evaluator{s.cfg, s.session, s.journal}, admission: admission, train: s.in.Train, critiques: s.critiques, edits: s.edits,
	}
	s.seed = &Candidate{ResourcesID: "apo-" + s.editor.runID() + "-seed", Resources: s.in.InitialResources, Prompts: prompts}
	s.candidates, s.beam, s.best = []*Candidate{s.seed}, []*Candidate{s.seed}, s.seed
	return nil
}

// identity is what the results of the search depend on.
func (s *search) identity(seed []NamedPrompt) (map[string]string, error) {
	c := s.cfg
	train, err := digest(s.in.Train)
	if err != nil {
		return nil, fmt.Errorf("read train dataset: %w", err)
	}
	val, err := digest(s.in.Val)
	if err != nil {
		return nil, fmt.Errorf("read val dataset: %w", err)
	}
	var prompts []string
	for _, p := range seed {
		prompts = append(prompts, p.Name, string(templateOf(s.in.InitialResources, p.Name).Engine), p.Prompt)
	}
	identity := map[string]string{
		"seed": fmt.Sprint(c.Seed), "train": train, "val": val, "prompts": digestText(prompts...),
		"beam":        fmt.Sprintf("width=%d branch=%d", c.BeamWidth, c.BranchFactor),
		"batches":     fmt.Sprintf("gradient=%d val=%d final=%d", c.GradientBatch, c.ValBatch, c.FinalSamples),
		"requests":    digestText(append(append([]string{}, c.CritiquePrompts...), c.EditPrompts...)...),
		"temperature": fmt.Sprint(c.Temperature.Or(1)),
		"attempts":    fmt.Sprint(c.Attempts),
		"interval":    fmt.Sprintf("level=%v resamples=%d", c.Level, c.Resamples),
		"initial":     fmt.Sprintf("skip=%t", c.SkipInitialValidation),
	}
	if c.Live == nil {
		identity["sampling"] = algorithm.SamplingOf(s.in.InitialResources)
	} else {
		identity["live"] = fmt.Sprintf("sessions=%d", c.Live.Sessions)
	}
	return identity, nil
}

func digest(data agl.Dataset) (string, error) {
	if data == nil {
		return "none", nil
	}
	h := sha256.New()
	for i := range data.Len() {
		task, err := data.Task(i)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%d:%s", len(task), task)
	}
	return fmt.Sprintf("%d tasks %s", data.Len(), shortHex(h.Sum(nil))), nil
}

func digestText(parts ...string) string {
	h := sha256.New()
	for _, part := range parts {
		fmt.Fprintf(h, "%d:%s", len(part), part)
	}
	return shortHex(h.Sum(nil))
}

func shortHex(sum []byte) string { return hex.EncodeToString(sum[:8]) }

func (s *search) search(ctx context.Context) error {
	if err := s.store(ctx, s.seed); err != nil {
		return err
	}
	if !s.cfg.SkipInitialValidation {
		if _, err := s.validate(ctx, s.seed); err != nil {
			return err
		}
		s.cfg.OnSeed(*s.seed)
	}
	s.publish(ctx)
	for round := 1; round <= s.cfg.Rounds && !s.report.OutOfBudget; round++ {
		if err := s.round(ctx, round); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return s.finish(ctx)
}

// store adds the candidate's bundle to the store, unless an earlier process did and
// nothing else in the bundle, such as the endpoint of a model, has changed.
func (s *search) store(ctx context.Context, c *Candidate) error {
	known, err := s.in.Store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: c.ResourcesID})
	if errors.Is(err, agl.ErrNotFound) || (err == nil && !bytes.Equal(known.Resources.AppendJSON(nil), c.Resources.AppendJSON(nil))) {
		_, err = s.in.Store.UpdateResources(ctx, agl.UpdateResourcesParams{ResourcesID: c.ResourcesID, Resources: c.Resources, KeepLatest: true})
	}
	if err != nil {
		return fmt.Errorf("store resources %s: %w", c.ResourcesID, err)
	}
	return nil
}

// round makes edits, compares them with the beam, and validates the leader.
func (s *search) round(ctx context.Context, number int) error {
	edits, err := s.propose(ctx, number)
	if err != nil {
		return err
	}
	fresh := s.distinct(edits)
	for _, c := range fresh {
		if err := s.store(ctx, c); err != nil {
			return err
		}
	}
	s.candidates = append(s.candidates, fresh...)
	if len(fresh) > 0 {
		if err := s.compare(ctx, number, fresh); err != nil {
			return err
		}
	}
	gain, err := s.challenge(ctx)
	if err != nil {
		return err
	}
	round := Round{Round: number, Candidates: len(fresh), Gain: gain, Best: s.best.ResourcesID, Spent: s.journal.spent(number)}
	for _, c := range s.beam {
		round.Beam = append(round.Beam, c.ResourcesID)
	}
	s.report.Rounds = append(s.report.Rounds, round)
	if err := errors.Join(s.writeReport(), s.session.AppendMetrics(ctx, round)); err != nil {
		return err
	}
	s.publish(ctx)
	s.cfg.Logger.InfoContext(ctx, "round finished", "round", number, "candidates", len(fresh), "leader", s.beam[0].ResourcesID,
		"score", s.beam[0].Score.V, "gain", gain.Mean, "best", s.best.ResourcesID, "dollars", round.Spent.Dollars)
	s.cfg.OnRound(round)
	return nil
}

// propose makes the round's edits in parallel. An edit that failed is nil. Once the budget is spent, the rest is nil.
func (s *search) propose(ctx context.Context, round int) ([]*Candidate, error) {
	edits := make([]*Candidate, s.cfg.BeamWidth*s.cfg.BranchFactor)
	proposals := make([]*proposal, len(edits))
	for i := range edits {
		proposals[i] = s.editor.draw(s.beam, round, i)
	}
	spent := make([]bool, len(edits))
	err := s.parallel(ctx, len(edits), func(ctx context.Context, i int) (err error) {
		edits[i], err = proposals[i].make(ctx)
		if errors.Is(err, errBudget) {
			spent[i] = true
			return nil
		}
		return err
	})
	for i, p := range proposals {
		s.report.Refused += p.refused
		s.report.OutOfBudget = s.report.OutOfBudget || spent[i]
		if edits[i] == nil && !spent[i] {
			s.report.Abandoned++
		}
	}
	return edits, err
}

// distinct returns the edits whose prompts are new.
func (s *search) distinct(edits []*Candidate) []*Candidate {
	var out []*Candidate
	for _, edit := range edits {
		same := func(c *Candidate) bool { return slices.Equal(c.Prompts, edit.Prompts) }
		if edit != nil && !slices.ContainsFunc(s.candidates, same) && !slices.ContainsFunc(out, same) {
			out = append(out, edit)
		}
	}
	return out
}

// compare evaluates the beam and the new candidates on the same tasks. The best are
// the next beam. If none has a score, the beam stays.
func (s *search) compare(ctx context.Context, round int, fresh []*Candidate) error {
	pool := append(append([]*Candidate{}, s.beam...), fresh...)
	r := rand.New(rand.NewPCG(s.cfg.Seed, algorithm.DeriveSeed(s.cfg.Seed, stageValidation, round)))
	tasks := r.Perm(s.in.Val.Len())[:min(s.cfg.ValBatch, s.in.Val.Len())]
	byTask := make([][]agl.Null[float64], len(pool))
	err := s.parallel(ctx, len(pool), func(ctx context.Context, i int) error {
		evaluated, err := s.editor.scores(ctx, evaluation{
			key: fmt.Sprintf("round-%d/%s/%s", round, stageValidation, pool[i].ResourcesID), stage: stageValidation, place: []int{round},
			candidate: pool[i], mode: agl.ModeVal, data: s.in.Val, tasks: tasks, samples: 1,
		})
		byTask[i] = evaluated.ByTask
		return err
	})
	if err != nil {
		return err
	}
	for i, c := range pool[len(s.beam):] {
		parent := slices.IndexFunc(s.beam, func(b *Candidate) bool { return b.ResourcesID == c.Parent })
		c.Gain = s.difference(byTask[parent], byTask[len(s.beam)+i])
	}
	type standing struct {
		*Candidate

		above float64
	}
	var ranked []standing
	for i, above := range relativeScores(byTask) {
		pool[i].Score = meanScore(byTask[i])
		if above.Valid {
			ranked = append(ranked, standing{pool[i], above.V})
		}
	}
	if ranked == nil {
		return nil
	}
	slices.SortStableFunc(ranked, func(a, b standing) int {
		return cmp.Or(cmp.Compare(b.above, a.above), cmp.Compare(a.promptBytes(), b.promptBytes()))
	})
	s.beam = nil
	for _, one := range ranked[:min(s.cfg.BeamWidth, len(ranked))] {
		s.beam = append(s.beam, one.Candidate)
	}
	return nil
}

// validate runs the whole validation dataset with a candidate, once for all rounds.
func (s *search) validate(ctx context.Context, c *Candidate) ([]agl.Null[float64], error) {
	evaluated, err := s.editor.scores(ctx, s.whole(c, stageFull, 1))
	c.Validation = meanScore(evaluated.ByTask)
	return evaluated.ByTask, err
}

func (s *search) whole(c *Candidate, stage string, samples int) evaluation {
	tasks := make([]int, s.in.Val.Len())
	for i := range tasks {
		tasks[i] = i
	}
	return evaluation{
		key: stage + "/" + c.ResourcesID, stage: stage, candidate: c, mode: agl.ModeVal, data: s.in.Val, tasks: tasks, samples: samples,
	}
}

// challenge compares the leader with the best so far.
func (s *search) challenge(ctx context.Context) (Difference, error) {
	leader := s.beam[0]
	if leader == s.best {
		return Difference{}, nil
	}
	scores, err := s.validate(ctx, leader)
	if err != nil {
		return Difference{}, err
	}
	if s.best == s.seed && s.cfg.SkipInitialValidation {
		s.best = leader
		return Difference{}, nil
	}
	before, err := s.validate(ctx, s.best)
	if err != nil {
		return Difference{}, err
	}
	gain := s.difference(before, scores)
	shorter := s.best != s.seed && gain.Tie() && gain.Mean >= 0 && leader.promptBytes() < s.best.promptBytes()
	if gain.Positive() || shorter {
		s.best = leader
	}
	return gain, nil
}

func (s *search) difference(before, after []agl.Null[float64]) Difference {
	return pairedDifference(before, after, s.cfg.Level, s.cfg.Resamples, algorithm.DeriveSeed(s.cfg.Seed, "bootstrap"))
}

// finish compares the best with the seed on rollouts that took part in no choice, and makes the winner the latest resources.
func (s *search) finish(ctx context.Context) error {
	if s.best != s.seed {
		pair := []*Candidate{s.seed, s.best}
		byTask := make([][]agl.Null[float64], len(pair))
		err := s.parallel(ctx, len(pair), func(ctx context.Context, i int) error {
			evaluated, err := s.editor.scores(ctx, s.whole(pair[i], stageFinal, s.cfg.FinalSamples))
			byTask[i] = evaluated.ByTask
			return err
		})
		if err != nil {
			return fmt.Errorf("final comparison: %w", err)
		}
		s.report.Compared, s.report.Gain = s.best.ResourcesID, s.difference(byTask[0], byTask[1])
		if s.report.Improved = s.report.Gain.Positive(); !s.report.Improved {
			s.best = s.seed
		}
	}
	s.report.Finished = true
	_, err := s.in.Store.UpdateResources(ctx, agl.UpdateResourcesParams{ResourcesID: s.best.ResourcesID, Resources: s.best.Resources})
	if err != nil {
		return fmt.Errorf("store the best resources: %w", err)
	}
	s.publish(ctx)
	return s.writeReport()
}

// writeReport completes the report and replaces report.json.
func (s *search) writeReport() error {
	r, totals := &s.report, s.journal.totals()
	r.Run, r.Spent = s.editor.runID(), s.journal.spent(math.MaxInt)
	r.Rollouts, r.Masked = totals.Rollouts, totals.Masked
	r.Seed, r.Best = *s.seed, *s.best
	r.Candidates = make([]Candidate, len(s.candidates))
	for i, c := range s.candidates {
		r.Candidates[i] = *c
	}
	return s.session.WriteReport(r)
}

// parallel calls do for 0 … n−1, Config.Concurrency at a time, and returns when all
// calls have returned. The first error cancels the others; a panic, such as one of a [Model], is an error.
func (s *search) parallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(s.cfg.Concurrency)
	for i := range n {
		group.Go(func() error { return panics.Located(panics.Catch(func() error { return do(ctx, i) })) })
	}
	return group.Wait()
}
