package apo

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

// APO is the algorithm. Make it with [New].
type APO struct {
	cfg              Config
	critiques, edits metaPrompts
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
	if a.critiques, err = parseMeta("CritiquePrompts", cfg.CritiquePrompts, CritiqueData{Experiments: []Experiment{{}}}); err != nil {
		return nil, err
	}
	a.edits, err = parseMeta("EditPrompts", cfg.EditPrompts, EditData{})
	return a, err
}

// Report returns what the last Run found, as far as it came. It must not be called
// while one is running.
func (a *APO) Report() Report { return a.report }

// search is one Run.
type search struct {
	*APO

	in        agl.AlgorithmInput
	journal   *journal
	templates []string // names of those in the bundle

	seed       *Candidate
	candidates []*Candidate // the seed first, then in the order in which they were made
	beam       []*Candidate // best first
	best       *Candidate
}

// Run searches for better prompt templates than those of the initial resources,
// which must hold at least one, with the tasks of both datasets, which must not be
// empty. It needs runners that take the rollouts. Every candidate is stored as a
// resources bundle of its own; the best one is the latest resources in the end. A
// spent budget is no error, a model that fails is one; with Config.OutDir, a later
// Run goes on from either.
func (a *APO) Run(ctx context.Context, in agl.AlgorithmInput) error {
	a.report = Report{}
	s := &search{APO: a, in: in}
	if err := s.prepare(ctx); err != nil {
		return err
	}
	err := s.search(ctx)
	if err = errors.Join(err, s.journal.close()); err != nil {
		return fmt.Errorf("apo: %w", err)
	}
	return nil
}

// prepare checks the input and opens the journal.
func (s *search) prepare(ctx context.Context) error {
	switch {
	case s.in.Store == nil:
		return invalid("the input has no store")
	case s.in.Train == nil || s.in.Train.Len() == 0:
		return invalid("the training dataset is empty; critiques need tasks")
	case s.in.Val == nil || s.in.Val.Len() == 0:
		return invalid("the validation dataset is empty; candidates are compared on it")
	}
	for _, r := range s.in.InitialResources {
		if _, ok := r.Resource.(agl.PromptTemplate); ok {
			s.templates = append(s.templates, r.Name)
		}
	}
	if s.templates == nil {
		return invalid("the initial resources hold no prompt_template; there is nothing to tune")
	}
	identity, err := s.identity()
	if err != nil {
		return fmt.Errorf("apo: %w", err)
	}
	if s.journal, err = openJournal(s.cfg.OutDir, identity); err != nil {
		return fmt.Errorf("apo: %w", err)
	}
	if err := s.cancelLeftovers(ctx); err != nil {
		return errors.Join(fmt.Errorf("apo: %w", err), s.journal.close())
	}
	return nil
}

// identity is what the search's results depend on.
func (s *search) identity() (map[string]string, error) {
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
	for _, name := range s.templates {
		t := templateOf(s.in.InitialResources, name)
		prompts = append(prompts, name, string(t.Engine), t.Template)
	}
	return map[string]string{
		"seed": fmt.Sprint(c.Seed), "train": train, "val": val, "prompts": digestText(prompts...),
		"beam":        fmt.Sprintf("width=%d branch=%d", c.BeamWidth, c.BranchFactor),
		"batches":     fmt.Sprintf("gradient=%d val=%d final=%d", c.GradientBatch, c.ValBatch, c.FinalSamples),
		"requests":    digestText(append(append([]string{}, c.CritiquePrompts...), c.EditPrompts...)...),
		"temperature": fmt.Sprint(c.Temperature.Or(1)),
		"attempts":    fmt.Sprint(c.Attempts),
		"interval":    fmt.Sprintf("level=%v resamples=%d", c.Level, c.Resamples),
		"initial":     fmt.Sprintf("skip=%t", c.SkipInitialValidation),
	}, nil
}

func digest(data agl.Dataset) (string, error) {
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
	s.seed = &Candidate{
		ResourcesID: "apo-" + s.journal.header.Run + "-seed", Resources: s.in.InitialResources, Prompts: promptsOf(s.in.InitialResources),
	}
	s.candidates, s.beam, s.best = []*Candidate{s.seed}, []*Candidate{s.seed}, s.seed
	if err := s.store(ctx, s.seed); err != nil {
		return err
	}
	if !s.cfg.SkipInitialValidation {
		if _, err := s.validate(ctx, s.seed); err != nil {
			return err
		}
	}
	for round := 1; round <= s.cfg.Rounds && !s.report.OutOfBudget; round++ {
		if err := s.round(ctx, round); err != nil {
			return errors.Join(fmt.Errorf("round %d: %w", round, err), s.writeReport())
		}
	}
	return s.conclude(ctx)
}

func promptsOf(resources agl.Resources) []NamedPrompt {
	var out []NamedPrompt
	for _, r := range resources {
		if t, ok := r.Resource.(agl.PromptTemplate); ok {
			out = append(out, NamedPrompt{r.Name, t.Template})
		}
	}
	return out
}

// store makes the candidate's bundle known, unless a run before this one did and
// nothing beside the prompts, as a model's endpoint, has changed since.
func (s *search) store(ctx context.Context, c *Candidate) error {
	known, err := s.in.Store.GetResources(ctx, agl.GetResourcesParams{ResourcesID: c.ResourcesID})
	if errors.Is(err, agl.ErrNotFound) || (err == nil && !bytes.Equal(known.Resources.AppendJSON(nil), c.Resources.AppendJSON(nil))) {
		_, err = s.in.Store.UpdateResources(ctx, agl.UpdateResourcesParams{ResourcesID: c.ResourcesID, Resources: c.Resources})
	}
	if err != nil {
		return fmt.Errorf("store resources %s: %w", c.ResourcesID, err)
	}
	return nil
}

// round makes edits, compares them, and looks at the leader.
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
	if err := s.writeReport(); err != nil {
		return err
	}
	s.cfg.Logger.InfoContext(ctx, "round finished", "round", number, "candidates", len(fresh), "leader", s.beam[0].ResourcesID,
		"score", s.beam[0].Score.V, "gain", gain.Mean, "best", s.best.ResourcesID, "dollars", round.Spent.Dollars)
	s.cfg.Progress(round)
	return nil
}

// distinct returns the edits whose prompts were not tried before.
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

// compare scores the beam and the new candidates on the same tasks and keeps the
// best as the beam. When none has a score, the beam stays.
func (s *search) compare(ctx context.Context, round int, fresh []*Candidate) error {
	pool := append(append([]*Candidate{}, s.beam...), fresh...)
	r := rand.New(rand.NewPCG(s.cfg.Seed, algorithm.DeriveSeed(s.cfg.Seed, stageValidation, round)))
	tasks := r.Perm(s.in.Val.Len())[:min(s.cfg.ValBatch, s.in.Val.Len())]
	scores := make([][]agl.Null[float64], len(pool))
	err := s.parallel(ctx, len(pool), func(ctx context.Context, i int) error {
		t, err := s.try(ctx, batch{
			key: fmt.Sprintf("round-%d/%s/%s", round, stageValidation, pool[i].ResourcesID), stage: stageValidation, place: []int{round},
			candidate: pool[i], mode: agl.ModeVal, data: s.in.Val, tasks: tasks, samples: 1,
		})
		scores[i] = t.Scores
		return err
	})
	if err != nil {
		return err
	}
	for i, c := range pool[len(s.beam):] {
		parent := slices.IndexFunc(s.beam, func(b *Candidate) bool { return b.ResourcesID == c.Parent })
		c.Gain = s.gain(scores[parent], scores[len(s.beam)+i])
	}
	type standing struct {
		*Candidate

		above float64
	}
	var ranked []standing
	for i, above := range standings(scores) {
		pool[i].Score = meanScore(scores[i])
		if above.Valid {
			ranked = append(ranked, standing{pool[i], above.V})
		}
	}
	if ranked == nil {
		return nil
	}
	slices.SortStableFunc(ranked, func(a, b standing) int {
		return cmp.Or(cmp.Compare(b.above, a.above), cmp.Compare(a.length(), b.length()))
	})
	s.beam = nil
	for _, one := range ranked[:min(s.cfg.BeamWidth, len(ranked))] {
		s.beam = append(s.beam, one.Candidate)
	}
	return nil
}

// length is that of all the prompts, in bytes.
func (c *Candidate) length() int {
	n := 0
	for _, p := range c.Prompts {
		n += len(p.Prompt)
	}
	return n
}

// validate runs the whole validation dataset with a candidate, once for all rounds.
func (s *search) validate(ctx context.Context, c *Candidate) ([]agl.Null[float64], error) {
	t, err := s.try(ctx, s.whole(c, stageFull, 1))
	c.Validation = meanScore(t.Scores)
	return t.Scores, err
}

func (s *search) whole(c *Candidate, stage string, samples int) batch {
	tasks := make([]int, s.in.Val.Len())
	for i := range tasks {
		tasks[i] = i
	}
	return batch{
		key: stage + "/" + c.ResourcesID, stage: stage, candidate: c, mode: agl.ModeVal, data: s.in.Val, tasks: tasks, samples: samples,
	}
}

// challenge compares the leader with the best so far.
func (s *search) challenge(ctx context.Context) (Gain, error) {
	leader := s.beam[0]
	if leader == s.best {
		return Gain{}, nil
	}
	scores, err := s.validate(ctx, leader)
	if err != nil {
		return Gain{}, err
	}
	if s.best == s.seed && s.cfg.SkipInitialValidation {
		s.best = leader
		return Gain{}, nil
	}
	before, err := s.validate(ctx, s.best)
	if err != nil {
		return Gain{}, err
	}
	gain := s.gain(before, scores)
	shorter := s.best != s.seed && gain.Tie() && gain.Mean >= 0 && leader.length() < s.best.length()
	if gain.Positive() || shorter {
		s.best = leader
	}
	return gain, nil
}

func (s *search) gain(before, after []agl.Null[float64]) Gain {
	return pairedGain(before, after, s.cfg.Level, s.cfg.Resamples, algorithm.DeriveSeed(s.cfg.Seed, "bootstrap"))
}

// conclude compares the best with the seed by rollouts that took part in no
// choice, and leaves the one to use as the latest resources.
func (s *search) conclude(ctx context.Context) error {
	if s.best != s.seed {
		pair := []*Candidate{s.seed, s.best}
		scores := make([][]agl.Null[float64], len(pair))
		err := s.parallel(ctx, len(pair), func(ctx context.Context, i int) error {
			t, err := s.try(ctx, s.whole(pair[i], stageFinal, s.cfg.FinalSamples))
			scores[i] = t.Scores
			return err
		})
		if err != nil {
			return errors.Join(fmt.Errorf("final comparison: %w", err), s.writeReport())
		}
		s.report.Compared, s.report.Gain = s.best.ResourcesID, s.gain(scores[0], scores[1])
		if s.report.Improved = s.report.Gain.Positive(); !s.report.Improved {
			s.best = s.seed
		}
	}
	s.report.Finished = true
	_, err := s.in.Store.UpdateResources(ctx, agl.UpdateResourcesParams{ResourcesID: s.best.ResourcesID, Resources: s.best.Resources})
	if err != nil {
		err = fmt.Errorf("store the best resources: %w", err)
	}
	return errors.Join(err, s.writeReport())
}

// parallel calls do for 0 … n−1, Config.Concurrency at a time, and returns when
// all have returned. The first error ends the context of the others.
func (s *search) parallel(ctx context.Context, n int, do func(ctx context.Context, i int) error) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	var wg sync.WaitGroup
	room := make(chan struct{}, s.cfg.Concurrency)
	for i := range n {
		room <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		wg.Go(func() {
			defer func() { <-room }()
			if err := do(ctx, i); err != nil {
				stop(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
