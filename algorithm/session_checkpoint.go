package algorithm

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/tinker"
)

// Checkpoint is a point from which a training run can resume: weights that the engine keeps and the state of the algorithm.
type Checkpoint struct {
	// Step is the number of steps done.
	Step int `json:"step"`
	// Weights is the path that tinker.TrainingClient.SaveWeights returned.
	Weights string `json:"weights"`
	// More are those of further models, which the run trains beside the first.
	More []string `json:"more,omitzero"`
	// Identity names what the results depend on (seed, model, data, …). A run with
	// another identity must not load the checkpoint.
	Identity map[string]string `json:"identity"`
	// State belongs to the algorithm.
	State jsontext.Value `json:"state"`
}

// all returns the weights of all models.
func (cp Checkpoint) all() []string { return append([]string{cp.Weights}, cp.More...) }

const (
	checkpointFormat = "agl-checkpoint-1"
	checkpointPrefix = "checkpoint-"
	checkpointSuffix = ".json"
	// noteFile holds the paths of weights whose checkpoint is not written yet, one in a line.
	noteFile = "weights.pending"
)

// checkpointFile is the content of a file. The engine keeps the weights themselves.
type checkpointFile struct {
	Format string `json:"format"`
	Checkpoint
}

// retainCheckpoints is the number of checkpoints that are kept, so that a run survives the loss of the newest weights.
const retainCheckpoints = 2

// Checkpoints keeps the checkpoints of one run in a directory. A file appears under its name only when it is complete and on
// disk. It is not safe for concurrent use, and two runs must not share a directory.
type Checkpoints struct {
	dir     string
	service tinker.Service
	logger  *slog.Logger
}

// OpenCheckpoints opens or creates the directory and removes unfinished files. The service is asked to delete the weights of
// old checkpoints; the logger gets failures to do so, and nil discards them.
func OpenCheckpoints(dir string, service tinker.Service, logger *slog.Logger) (*Checkpoints, error) {
	logger = cmp.Or(logger, slog.New(slog.DiscardHandler))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return nil, fmt.Errorf("open checkpoints: %w", err)
	}
	if err := durable.RemoveUnfinished(dir, "*"); err != nil {
		return nil, fmt.Errorf("open checkpoints: %w", err)
	}
	return &Checkpoints{dir: dir, service: service, logger: logger}, nil
}

// NoteWeights records weights that were just saved for the next [Checkpoints.Save]. If the process dies before that, the
// next [Checkpoints.Restore] deletes them: no checkpoint refers to them.
func (c *Checkpoints) NoteWeights(weights ...string) error {
	if err := durable.WriteFile(filepath.Join(c.dir, noteFile), []byte(strings.Join(weights, "\n")+"\n")); err != nil {
		return fmt.Errorf("note saved weights %s: %w", weights, err)
	}
	return nil
}

// Save writes a checkpoint whose weights are already saved, atomically and durably. It then deletes older checkpoints with
// their weights, and the weights of a checkpoint that it replaces. Only a failure to write is an error; ctx limits the
// deletions.
func (c *Checkpoints) Save(ctx context.Context, cp Checkpoint) error {
	path := filepath.Join(c.dir, fmt.Sprintf("%s%08d%s", checkpointPrefix, cp.Step, checkpointSuffix))
	replaced, readErr := readCheckpoint(path) // its weights could not be loaded
	if err := durable.WriteJSON(path, checkpointFile{checkpointFormat, cp}, jsontext.Multiline(true)); err != nil {
		return fmt.Errorf("save checkpoint of step %d: %w", cp.Step, err)
	}
	noted, deleted := c.removeNote(), c.prune(ctx, cp)
	if readErr == nil {
		deleted = errors.Join(deleted, c.deleteAll(ctx, replaced.all(), cp))
	}
	if ctx.Err() != nil { // the next Save prunes, and the next Restore deletes what is noted
		deleted = nil
		if readErr == nil {
			noted = errors.Join(noted, c.NoteWeights(replaced.all()...))
		}
	}
	if err := errors.Join(noted, deleted); err != nil {
		c.logger.WarnContext(ctx, "delete old checkpoints", "dir", c.dir, "error", err)
	}
	return nil
}

// Restore calls load with the checkpoints, newest first, until load succeeds. An agl.ErrNotFound (the engine no longer has
// the weights) or tinker.ErrDamaged is logged and the checkpoint before is tried. ok is false if there is no checkpoint at
// all.
//
// A checkpoint of another identity is agl.ErrConflict. So is a directory of which
// no checkpoint can be loaded: starting over would silently discard the run.
//
// Weights of [Checkpoints.NoteWeights] to which no checkpoint refers are deleted;
// a failure to delete is logged and tried again the next time.
func (c *Checkpoints) Restore(ctx context.Context, identity map[string]string, load func(Checkpoint) error) (cp Checkpoint, ok bool, err error) {
	if cp, ok, err = c.restore(ctx, identity, load); err != nil {
		return Checkpoint{}, false, err
	}
	if err := c.deleteNoted(ctx); err != nil {
		c.logger.WarnContext(ctx, "delete weights that no checkpoint refers to", "dir", c.dir, "error", err)
	}
	return cp, ok, nil
}

func (c *Checkpoints) restore(ctx context.Context, identity map[string]string, load func(Checkpoint) error) (cp Checkpoint, ok bool, err error) {
	paths, err := c.list()
	if err != nil || len(paths) == 0 {
		return Checkpoint{}, false, err
	}
	var failures []error
	for _, path := range slices.Backward(paths) {
		cp, err := readCheckpoint(path)
		if err == nil {
			if err := sameIdentity(path, cp.Identity, identity); err != nil {
				return Checkpoint{}, false, err
			}
			err = load(cp)
		}
		switch {
		case err == nil:
			return cp, true, nil
		case errors.Is(err, agl.ErrNotFound), errors.Is(err, tinker.ErrDamaged), errors.Is(err, errDamaged):
			failures = append(failures, fmt.Errorf("%s: %w", path, err))
			c.logger.WarnContext(ctx, "a checkpoint cannot be loaded; trying the one before", "path", path, "error", err)
		case errors.Is(err, agl.ErrInvalid): // such as those of a model of another size
			return Checkpoint{}, false, agl.Errorf(agl.CodeConflict, "%s belongs to another run: %w; resume with the same settings or use another directory", path, err)
		default:
			return Checkpoint{}, false, fmt.Errorf("load checkpoint %s: %w", path, err)
		}
	}
	return Checkpoint{}, false, agl.Errorf(agl.CodeConflict, "none of the %d checkpoints in %s can be loaded; restore the engine's weights or use another directory: %w",
		len(paths), c.dir, errors.Join(failures...))
}

// list returns the checkpoint files, oldest step first.
func (c *Checkpoints) list() ([]string, error) {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var paths []string
	for _, e := range entries { // sorted by name, and so by step
		if strings.HasPrefix(e.Name(), checkpointPrefix) && strings.HasSuffix(e.Name(), checkpointSuffix) {
			paths = append(paths, filepath.Join(c.dir, e.Name()))
		}
	}
	return paths, nil
}

// prune removes all but the newest checkpoints. The weights go before the file
// that names them, so that an interruption leaves no unreferenced weights.
func (c *Checkpoints) prune(ctx context.Context, current Checkpoint) error {
	paths, err := c.list()
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths[:max(len(paths)-retainCheckpoints, 0)] {
		if cp, err := readCheckpoint(path); err == nil {
			if err := c.deleteAll(ctx, cp.all(), current); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		errs = append(errs, removeIfExists(path))
	}
	return errors.Join(errs...)
}

// deleteNoted deletes the weights of the note, unless a checkpoint refers to them.
func (c *Checkpoints) deleteNoted(ctx context.Context) error {
	data, err := os.ReadFile(filepath.Join(c.dir, noteFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	paths, err := c.list()
	if err != nil {
		return err
	}
	var used []string
	for _, path := range paths {
		if cp, err := readCheckpoint(path); err == nil {
			used = append(used, cp.all()...)
		}
	}
	if err := c.deleteAll(ctx, strings.Fields(string(data)), Checkpoint{More: used}); err != nil {
		return err
	}
	return c.removeNote()
}

// deleteAll deletes weights, but those of the checkpoint that remains.
func (c *Checkpoints) deleteAll(ctx context.Context, weights []string, remains Checkpoint) error {
	var errs []error
	for _, path := range weights {
		if !slices.Contains(remains.all(), path) {
			errs = append(errs, DeleteWeights(ctx, c.service, path))
		}
	}
	return errors.Join(errs...)
}

func (c *Checkpoints) removeNote() error { return removeIfExists(filepath.Join(c.dir, noteFile)) }

// DeleteWeights deletes weights. It also succeeds if the engine has no such weights, or cannot delete any.
func DeleteWeights(ctx context.Context, service tinker.Service, weights string) error {
	err := service.DeleteWeights(ctx, tinker.DeleteWeightsParams{Path: weights})
	if err != nil && !errors.Is(err, agl.ErrNotFound) && !errors.Is(err, agl.ErrUnimplemented) {
		return fmt.Errorf("delete weights %s: %w", weights, err)
	}
	return nil
}

func removeIfExists(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// errDamaged marks a file that is not a complete checkpoint.
var errDamaged = errors.New("not a readable checkpoint")

func readCheckpoint(path string) (Checkpoint, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("read checkpoint: %w", err)
	}
	var f checkpointFile
	if err := json.Unmarshal(data, &f); err != nil {
		return Checkpoint{}, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if f.Format != checkpointFormat {
		return Checkpoint{}, fmt.Errorf("%w: its format is %q, this version reads %q", errDamaged, f.Format, checkpointFormat)
	}
	return f.Checkpoint, nil
}

// sameIdentity names every difference between the run that wrote path and this one.
func sameIdentity(path string, stored, given map[string]string) error {
	var differences []string
	all := maps.Clone(stored)
	maps.Copy(all, given)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if _, ok := stored[name]; !ok && slices.Contains(laterMembers, name) {
			continue
		}
		if stored[name] != given[name] {
			differences = append(differences, fmt.Sprintf("%s is %q here and %q there", name, given[name], stored[name]))
		}
	}
	if differences == nil {
		return nil
	}
	return agl.Errorf(agl.CodeConflict, "%s belongs to another run: %s; resume with the same settings or use another directory", path, strings.Join(differences, ", "))
}
