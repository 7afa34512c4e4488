package algorithm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"sync"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/internal/randomid"
)

// SessionParams are the arguments of [OpenSession].
type SessionParams struct {
	// Algorithm is the algorithm's name: the prefix of the run's name, and a member of its rollouts' metadata. Required.
	Algorithm string
	// Input is that of the run. Its store is required.
	Input agl.AlgorithmInput
	// RunConfig is that of the run, with its defaults filled in.
	RunConfig
	// Training, with its defaults filled in, makes the session train weights. Without a Service it trains none.
	Training TrainingConfig
	// Roles are models that are trained beside that of Training, on the same engine.
	Roles []Role
	// Identity is what the results depend on. A folder of another identity is agl.ErrConflict. A session that trains weights adds
	// the prompts, the sampling parameters and the validation, unless KeepVersions is set.
	Identity map[string]string
	// Steps is the number of steps of the run.
	Steps int
	// Pinned returns the resources of rollouts that are still running and keep the version of the model that they were enqueued with. It
	// may be called by any goroutine. Nil pins none: calls follow the newest version.
	Pinned func() []string
	// State returns the algorithm's own members of a checkpoint, an object; nil means that it has none. See
	// [Session.Own].
	State func() (any, error)
	// Release tries the weights in releases; nil gives them to all users.
	Release *ReleaseParams
	// KeepVersions lets a resumed run learn from calls that were answered by weights of a step that no checkpoint has, because the
	// process was killed. Each version is written to versions.json before anybody can call it. Its calls count as those of the
	// weights from which the run resumes.
	KeepVersions bool
	// Journal is called with each entry of journal.jsonl; nil means that the algorithm has no journal.
	Journal func(entry []byte) error
}

// Session is one Run of an algorithm. It owns what all algorithms need: the name of the run, its folder (metrics.jsonl,
// checkpoints/, journal.jsonl, report.json), the model in training, and the version that agents call. A session of a run
// that was interrupted resumes it: see [Session.Resumed].
//
// Exported fields may be read between calls. A session is used by one goroutine, except for AppendJournal.
type Session struct {
	// Run names the run across all its processes, in the metadata of its rollouts.
	Run string
	// Step is the number of steps done.
	Step int
	// Resumed is true if the session continues an earlier one.
	Resumed bool
	// Own holds the algorithm's own members of the checkpoint, an object; nil unless Resumed.
	Own jsontext.Value
	// Model is in training; nil if nothing is trained.
	Model *Model
	// Journal is journal.jsonl; nil without a folder.
	Journal *Lines
	// ResourcesID is the version of the resources that agents use.
	ResourcesID string
	// Calls tells the calls of Model from others; nil if nothing is trained.
	Calls *PolicyCalls
	// Roles are the models in training beside Model, in the order of SessionParams.
	Roles []TrainedRole
	// Totals adds up all processes of the run.
	Totals Totals
	// Before and After are the validations before the first step and after the last.
	Before, After *Report

	p          SessionParams
	generation int               // of the weights that are published: how often they were published after a step
	beside     *besideValidation // nil if none runs
	validate   bool              // the resumed run must repeat a validation beside training
	release    release
	metrics    *Lines
	keeping    sync.WaitGroup       // writes what the last step has computed
	snapshots  []publishedSnapshots // that the engine holds, oldest first
	unreported bool                 // the metrics have no line of Step yet
	unsaved    []string             // versions that were published since the last checkpoint, also by earlier processes
}

// Totals adds up a run.
type Totals struct {
	Rollouts int          `json:"rollouts"`        // validations included
	Spans    int          `json:"spans,omitzero"`  // of training
	Tokens   int          `json:"tokens,omitzero"` // sampled in training
	Masked   map[Mask]int `json:"masked"`          // of the rollouts
}

// Add counts rollouts.
func (t *Totals) Add(rollouts int, masked map[Mask]int) {
	t.Rollouts += rollouts
	if t.Masked == nil {
		t.Masked = map[Mask]int{}
	}
	for mask, n := range masked {
		t.Masked[mask] += n
	}
}

// Summary is the result of a run that trains weights.
type Summary struct {
	// Step is the number of steps done, those before a resumption included.
	Step    int
	Resumed bool
	Totals  Totals
	// Before and After are the validations before the first step and after the last; nil if there is no validation dataset,
	// and After also if the run was interrupted. Those of an earlier process have no Results.
	Before, After *Report
	// Weights is the path of the last checkpoint's weights; empty if there is none. Checkpoint is its step.
	Weights    string
	Checkpoint int
	// Roles are the weights of the models that were trained beside the first, by role.
	Roles map[string]string
	// Snapshot is the path of the last sampler snapshot that was published, with its ResourcesID. A run with steps left has deleted its
	// snapshots, and has none.
	Snapshot    string
	ResourcesID string
}

// sessionState is the state in a checkpoint. Own has the other members.
type sessionState struct {
	Run         string         `json:"run"`
	ResourcesID string         `json:"resources_id"`
	Totals      Totals         `json:"totals"`
	Before      *Report        `json:"before"`
	After       *Report        `json:"after"`
	Generation  int            `json:"generation,omitzero"`
	Release     *release       `json:"release,omitzero"`
	Validating  bool           `json:"validating,omitzero"` // the weights of this step
	Unreported  bool           `json:"unreported,omitzero"`
	Own         jsontext.Value `json:",embed"`
}

// OpenSession opens the folder of a run, resumes what is there, and cancels the
// rollouts that an earlier process left unfinished. The caller closes the session.
func OpenSession(ctx context.Context, p SessionParams) (_ *Session, err error) {
	switch {
	case p.Input.Store == nil:
		return nil, agl.Errorf(agl.CodeInvalid, "the input has no store")
	case p.Input.Val != nil && p.Input.Val.Len() == 0:
		return nil, agl.Errorf(agl.CodeInvalid, "the validation dataset is empty; leave it out or add tasks")
	}
	s := &Session{p: p}
	if s.p.Identity, err = s.identity(); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close(context.WithoutCancel(ctx)))
		}
	}()
	if p.Training.Service != nil {
		s.Calls = NewPolicyCalls(p.Training.ModelName)
		if err := s.openModel(ctx); err != nil {
			return nil, err
		}
		if err := s.readVersions(); err != nil {
			return nil, err
		}
	}
	if p.Journal != nil && p.OutDir != "" {
		if err := s.openJournal(); err != nil {
			return nil, err
		}
	}
	s.Run = cmp.Or(s.Run, p.RunID, newRun(p.Algorithm))
	if p.Steps > 0 && s.Step > p.Steps {
		return nil, agl.Errorf(agl.CodeConflict, "%d steps are done in %s, and the run is to have %d now; resume with at least as many or use another directory", s.Step, p.OutDir, p.Steps)
	}
	if s.Resumed {
		p.Logger.InfoContext(ctx, "the run resumes", "run", s.Run, "step", s.Step, "steps", p.Steps)
		if err := CancelRun(ctx, p.Input.Store, s.Run); err != nil {
			return nil, err
		}
	}
	if p.OutDir != "" {
		keep := s.Step + 1
		if s.Step == 0 && s.Before == nil || s.unreported {
			keep = s.Step
		}
		if s.metrics, err = openMetrics(filepath.Join(p.OutDir, "metrics.jsonl"), keep); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// newRun returns a name for a run.
func newRun(algorithm string) string {
	return algorithm + "-" + randomid.Hex(6)
}

func (s *Session) openModel(ctx context.Context) (err error) {
	p, t := s.p, s.p.Training
	params := ModelParams{Service: t.Service, Create: t.Model, InitialWeights: t.InitialWeights, More: p.Roles, Identity: p.Identity, Logger: p.Logger}
	if p.OutDir != "" {
		params.Dir = filepath.Join(p.OutDir, "checkpoints")
	}
	if s.Model, err = OpenModel(ctx, params); err != nil {
		return err
	}
	for i, role := range p.Roles {
		s.Roles = append(s.Roles, TrainedRole{Role: role, Client: s.Model.clients[i+1], Calls: NewPolicyCalls(role.ModelName)})
	}
	if !s.Model.Resumed {
		return nil
	}
	s.Resumed, s.Step = true, s.Model.Restored.Step
	var state sessionState
	if err := json.Unmarshal(s.Model.Restored.State, &state); err != nil {
		return fmt.Errorf("checkpoint of step %d: %w", s.Step, err)
	}
	s.Run, s.ResourcesID, s.Totals, s.Before, s.After, s.Own = state.Run, state.ResourcesID, state.Totals, state.Before, state.After, state.Own
	s.generation, s.validate, s.unreported = state.Generation, state.Validating, state.Unreported
	if state.Release != nil && p.Release != nil {
		s.release = *state.Release
	}
	if s.Step < p.Steps {
		s.After = nil // of a run that had fewer steps
	}
	return nil
}

// journalHeader is the first line of journal.jsonl.
type journalHeader struct {
	Format   string            `json:"format"`
	Run      string            `json:"run"`
	Identity map[string]string `json:"identity"`
}

func (s *Session) openJournal() (err error) {
	path := filepath.Join(s.p.OutDir, "journal.jsonl")
	number := 0
	s.Journal, err = OpenLines(path, func(line []byte) (bool, error) {
		number++
		read := s.p.Journal
		if number == 1 {
			read = func(line []byte) error { return s.readHeader(path, line) }
		}
		if err := read(line); err != nil {
			return false, agl.Errorf(agl.CodeConflict, "line %d: %w; use another directory", number, err)
		}
		return true, nil
	})
	if err != nil || s.Resumed {
		return err
	}
	s.Run = cmp.Or(s.p.RunID, newRun(s.p.Algorithm))
	return s.AppendJournal(journalHeader{Format: s.journalFormat(), Run: s.Run, Identity: s.p.Identity})
}

func (s *Session) journalFormat() string { return "agl-" + s.p.Algorithm + "-1" }

func (s *Session) readHeader(path string, line []byte) error {
	var header journalHeader
	if err := json.Unmarshal(line, &header); err != nil {
		return fmt.Errorf("not the header of a journal: %w", err)
	}
	if want := s.journalFormat(); header.Format != want {
		return fmt.Errorf("the format is %q, this version reads %q", header.Format, want)
	}
	s.Run, s.Resumed = header.Run, true
	return sameIdentity(path, header.Identity, s.p.Identity)
}

// AppendJournal writes an entry durably. It is safe for concurrent use.
func (s *Session) AppendJournal(entry any) error {
	if err := errors.Join(s.Journal.Append(entry), s.Journal.Sync()); err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

// openMetrics opens the metrics and drops the lines from a step on.
func openMetrics(path string, from int) (*Lines, error) {
	return OpenLines(path, func(line []byte) (bool, error) {
		var head struct {
			Step *int `json:"step"`
		}
		if err := json.Unmarshal(line, &head); err != nil || head.Step == nil {
			return false, nil //nolint:nilerr // the lines before a damaged one are kept
		}
		return *head.Step < from, nil
	})
}

// Begin publishes the first model of this process. Before the first step it also makes a checkpoint, so that a later process
// recognizes the rollouts of this one, validates, and writes the line that report returns for the validation.
func (s *Session) Begin(ctx context.Context, report func(v *Report, took time.Duration) any) error {
	s.p.Progress.OnStart(Start{Step: s.Step, Steps: s.p.Steps, Resumed: s.Resumed, Before: s.Before})
	var err error
	if s.p.Release != nil {
		err = s.beginReleases(ctx)
	} else {
		err = s.publishStep(ctx, s.Step)
	}
	if err != nil {
		return err
	}
	if s.validate {
		s.validate = false
		return s.StartValidation(ctx)
	}
	if s.Step > 0 || s.Before != nil {
		return nil
	}
	if !s.Resumed {
		if err := s.Commit(ctx, true, nil); err != nil {
			return err
		}
	}
	v, took, err := s.Validate(ctx, Tag{})
	if v == nil || err != nil {
		return err
	}
	s.Before = v
	return s.AppendMetrics(ctx, report(v, took))
}

// Store is that of the run.
func (s *Session) Store() agl.Store { return s.p.Input.Store }

// Tag is the metadata that the rollouts of a run have.
type Tag struct {
	Algorithm string `json:"algorithm"`
	Run       string `json:"run"`
	Stage     string `json:"stage,omitzero"`
	Step      int    `json:"step,omitzero"`
	Round     int    `json:"round,omitzero"`
	Group     int    `json:"group,omitzero"`
	Sample    int    `json:"sample"`
	Index     int    `json:"index"` // MetadataIndex
	Seed      uint64 `json:"seed"`  // MetadataSeed
}

// metadata completes a tag and encodes it.
func (s *Session) metadata(tag Tag) (jsontext.Value, error) {
	tag.Algorithm, tag.Run = s.p.Algorithm, s.Run
	data, err := json.Marshal(tag)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	return data, nil
}

// Rollout describes a rollout of the run.
func (s *Session) Rollout(task jsontext.Value, mode agl.Mode, resourcesID string, tag Tag) (agl.EnqueueRollout, error) {
	metadata, err := s.metadata(tag)
	limits := s.p.Rollout
	return agl.EnqueueRollout{Input: task, Mode: mode, ResourcesID: agl.Some(resourcesID), Config: &limits, Metadata: metadata}, err
}

// Rollouts runs training rollouts of the session's [Session.Params], as [Rollouts] does, and reports progress.
func (s *Session) Rollouts(ctx context.Context, step int, p RolloutsParams) iter.Seq2[Group, error] {
	return func(yield func(Group, error) bool) {
		done := 0
		for group, err := range Rollouts(ctx, p) {
			if !yield(group, err) {
				return
			}
			done += len(group.Episodes)
			if err == nil {
				s.p.Progress.OnRollouts(PhaseTrain, step, done, len(p.Rollouts))
			}
		}
	}
}

// Params are the arguments of [Rollouts] for rollouts of the run.
func (s *Session) Params(rollouts []agl.EnqueueRollout, groupSize int) RolloutsParams {
	return RolloutsParams{Store: s.p.Input.Store, Rollouts: rollouts, GroupSize: groupSize, Flusher: s.p.Flusher, Logger: s.p.Logger}
}

// Commit ends a step: it writes the line that report returns and, with checkpoint, makes a checkpoint. It saves the weights
// first and passes the time that this took to report. It writes the state when the line is durable, so that no checkpoint
// includes a step whose line is lost. A nil report writes no line. The weights that are validated beside training always get a checkpoint:
// without it, a run that is interrupted meanwhile could not validate them again.
func (s *Session) Commit(ctx context.Context, checkpoint bool, report func(saving time.Duration) any) error {
	checkpoint = (checkpoint || s.release.offered || s.validates(s.Step)) && s.Model.KeepsCheckpoints()
	var saving time.Duration
	if checkpoint && s.Model.Saved != s.Step {
		start := time.Now()
		if err := s.Model.Save(ctx, s.Step); err != nil {
			return err
		}
		saving = time.Since(start)
	}
	if report != nil {
		if err := s.AppendMetrics(ctx, report(saving)); err != nil {
			return fmt.Errorf("write metrics: %w", err)
		}
		s.unreported = false
	}
	if !checkpoint {
		return s.committed(ctx)
	}
	if err := s.metrics.Sync(); err != nil {
		return fmt.Errorf("write metrics: %w", err)
	}
	state := sessionState{Run: s.Run, ResourcesID: s.ResourcesID, Totals: s.Totals, Before: s.Before, After: s.After, Generation: s.generation,
		Validating: s.validates(s.Step), Unreported: s.unreported}
	if s.p.Release != nil {
		state.Release = &s.release
	}
	if s.p.State != nil {
		own, err := s.p.State()
		if err != nil {
			return err
		}
		if state.Own, err = json.Marshal(own, json.Deterministic(true)); err != nil {
			return fmt.Errorf("encode state: %w", err)
		}
	}
	if err := s.Model.SaveState(ctx, s.Step, state); err != nil {
		return err
	}
	s.unsaved = nil
	return s.committed(ctx)
}

// AppendMetrics writes a line of metrics.jsonl.
func (s *Session) AppendMetrics(ctx context.Context, line any) error {
	if err := s.metrics.Append(line); err != nil || s.p.OnMetrics == nil {
		return err
	}
	data, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode metrics: %w", err)
	}
	s.p.OnMetrics(ctx, data)
	return nil
}

// RestoreMetrics writes a line of metrics.jsonl that an earlier process has written and reported.
func (s *Session) RestoreMetrics(line any) error { return s.metrics.Append(line) }

// WriteReport replaces report.json. It does nothing without a folder.
func (s *Session) WriteReport(report any) error {
	if s.p.OutDir == "" {
		return nil
	}
	if err := durable.WriteJSON(filepath.Join(s.p.OutDir, "report.json"), report, jsontext.Multiline(true)); err != nil {
		return fmt.Errorf("write report: %w", err)
	}
	return nil
}

// Summary returns the result so far; that of a nil session is zero.
func (s *Session) Summary() Summary {
	if s == nil {
		return Summary{}
	}
	out := Summary{Step: s.Step, Resumed: s.Resumed, Totals: s.Totals, Before: s.Before, After: s.After, ResourcesID: s.ResourcesID}
	if s.Model != nil {
		out.Weights, out.Checkpoint = s.Model.Weights, s.Model.Saved
		for i, weights := range s.Model.MoreWeights {
			if out.Roles == nil {
				out.Roles = map[string]string{}
			}
			out.Roles[s.Roles[i].Name] = weights
		}
	}
	if n := len(s.snapshots); n > 0 {
		out.Snapshot = s.snapshots[n-1].paths[0]
	}
	return out
}

// Close ends a validation that runs beside training, waits for what [Session.KeepTrained] writes, closes the files, deletes snapshots and
// unloads the model. On a nil session it does nothing.
func (s *Session) Close(ctx context.Context) error {
	if s == nil {
		return nil
	}
	s.beside.end()
	s.keeping.Wait()
	err := errors.Join(s.metrics.Close(), s.Journal.Close())
	if s.Model != nil {
		s.closeSnapshots(ctx)
		Unload(ctx, s.p.Logger, s.Model)
	}
	return err
}
