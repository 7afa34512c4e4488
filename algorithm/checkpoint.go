package algorithm

import (
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
	"github.com/agl-go/agl/tinker"
)

// Checkpoint is a resumable moment of a training run: weights that the engine
// keeps and the state of the algorithm.
type Checkpoint struct {
	// Step is the number of steps done.
	Step int `json:"step"`
	// Weights is the path that tinker.TrainingClient.SaveWeights returned.
	Weights string `json:"weights"`
	// Identity names what the run is made of (seed, model, data, …); a run with
	// another identity must not load the checkpoint.
	Identity map[string]string `json:"identity"`
	// State is the algorithm's own.
	State jsontext.Value `json:"state"`
}

const (
	checkpointFormat = "agl-checkpoint-1"
	checkpointPrefix = "checkpoint-"
	checkpointSuffix = ".json"
	unfinishedSuffix = ".tmp"
)

// checkpointFile is the file's form. Weights are not in it: they are the engine's.
type checkpointFile struct {
	Format string `json:"format"`
	Checkpoint
}

// CheckpointsConfig configures [OpenCheckpoints].
type CheckpointsConfig struct {
	// Dir holds one file per checkpoint and is made if need be. Required.
	Dir string
	// Service is asked to delete the weights of checkpoints that are pruned. Required.
	Service tinker.Service
	// Keep is how many checkpoints are kept; zero means 2, so that one that the
	// engine has lost does not end the run.
	Keep int
	// Logger gets what goes wrong while pruning; nil discards it.
	Logger *slog.Logger
}

// Checkpoints keeps the checkpoints of one run in a directory. A file appears
// under its name only when it is complete and on disk, so what can be read is
// whole; leftovers of an interrupted write are removed by [OpenCheckpoints].
// It is not safe for concurrent use, and a directory is one run's alone.
type Checkpoints struct {
	cfg CheckpointsConfig
}

// OpenCheckpoints opens or makes the directory.
func OpenCheckpoints(cfg CheckpointsConfig) (*Checkpoints, error) {
	if cfg.Keep == 0 {
		cfg.Keep = 2
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.Dir == "" || cfg.Service == nil || cfg.Keep < 1 {
		return nil, agl.Errorf(agl.CodeInvalid, "checkpoints: Dir %q, Service %v, Keep %d: a directory, a service and a positive number are needed", cfg.Dir, cfg.Service, cfg.Keep)
	}
	if err := os.MkdirAll(cfg.Dir, 0o750); err != nil {
		return nil, fmt.Errorf("open checkpoints: %w", err)
	}
	leftovers, err := filepath.Glob(filepath.Join(cfg.Dir, checkpointPrefix+"*"+unfinishedSuffix))
	if err != nil {
		return nil, fmt.Errorf("open checkpoints: %w", err)
	}
	for _, path := range leftovers {
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("open checkpoints: %w", err)
		}
	}
	return &Checkpoints{cfg: cfg}, nil
}

// Save writes a checkpoint whose weights are already saved, atomically and
// durably, and then prunes older ones with their weights, those of one that it
// replaced included. Only a failure to write is an error; ctx bounds the pruning.
func (c *Checkpoints) Save(ctx context.Context, cp Checkpoint) error {
	data, err := json.Marshal(checkpointFile{checkpointFormat, cp}, json.Deterministic(true), jsontext.Multiline(true))
	if err != nil {
		return fmt.Errorf("save checkpoint of step %d: %w", cp.Step, err)
	}
	name := fmt.Sprintf("%s%08d%s", checkpointPrefix, cp.Step, checkpointSuffix)
	path := filepath.Join(c.cfg.Dir, name)
	replaced, readErr := readCheckpoint(path) // one that could not be loaded
	if err := WriteFileAtomic(path, append(data, '\n')); err != nil {
		return fmt.Errorf("save checkpoint of step %d: %w", cp.Step, err)
	}
	err = errors.Join(c.settled(), c.prune(ctx, cp.Weights))
	if readErr == nil && replaced.Weights != cp.Weights {
		err = errors.Join(err, c.deleteWeights(ctx, replaced.Weights))
	}
	if err != nil {
		c.cfg.Logger.WarnContext(ctx, "prune old checkpoints", "dir", c.cfg.Dir, "error", err)
	}
	return nil
}

// Restore finds the newest checkpoint that load accepts. load is to load the
// weights; when it says agl.ErrNotFound (the engine no longer has them) or
// tinker.ErrDamaged, a warning is logged and the checkpoint before is tried. ok is false when the directory holds none at all.
//
// A checkpoint of another identity is agl.ErrConflict, and so is a directory
// that holds checkpoints of which none can be loaded: starting anew there would
// silently throw the run away.
//
// Weights that an interrupted process left without a checkpoint are deleted, see
// [Checkpoints.Pend]; a failure to do so is logged and tried again the next time.
func (c *Checkpoints) Restore(ctx context.Context, identity map[string]string, load func(Checkpoint) error) (cp Checkpoint, ok bool, err error) {
	if cp, ok, err = c.restore(ctx, identity, load); err != nil {
		return Checkpoint{}, false, err
	}
	if err := c.dropPending(ctx); err != nil {
		c.cfg.Logger.WarnContext(ctx, "delete weights that an interrupted process left", "dir", c.cfg.Dir, "error", err)
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
			c.cfg.Logger.WarnContext(ctx, "a checkpoint cannot be loaded, trying the one before", "path", path, "error", err)
		default:
			return Checkpoint{}, false, fmt.Errorf("load checkpoint %s: %w", path, err)
		}
	}
	return Checkpoint{}, false, agl.Errorf(agl.CodeConflict, "none of the %d checkpoints in %s can be loaded; restore the engine's weights or use another directory: %w",
		len(paths), c.cfg.Dir, errors.Join(failures...))
}

// list returns the checkpoint files, oldest step first.
func (c *Checkpoints) list() ([]string, error) {
	entries, err := os.ReadDir(c.cfg.Dir)
	if err != nil {
		return nil, fmt.Errorf("list checkpoints: %w", err)
	}
	var paths []string
	for _, e := range entries { // sorted by name, and so by step
		if strings.HasPrefix(e.Name(), checkpointPrefix) && strings.HasSuffix(e.Name(), checkpointSuffix) {
			paths = append(paths, filepath.Join(c.cfg.Dir, e.Name()))
		}
	}
	return paths, nil
}

// prune removes all but the newest checkpoints. Weights go before the file that
// names them, so that an interruption leaves no weights that nobody knows.
func (c *Checkpoints) prune(ctx context.Context, current string) error {
	paths, err := c.list()
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range paths[:max(len(paths)-c.cfg.Keep, 0)] {
		if cp, err := readCheckpoint(path); err == nil && cp.Weights != current {
			if err := c.deleteWeights(ctx, cp.Weights); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// errDamaged marks a file that no whole write made.
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

// sameIdentity names every difference.
func sameIdentity(path string, stored, given map[string]string) error {
	var diffs []string
	all := maps.Clone(stored)
	maps.Copy(all, given)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if stored[name] != given[name] {
			diffs = append(diffs, fmt.Sprintf("%s is %q here and %q in the checkpoint", name, given[name], stored[name]))
		}
	}
	if len(diffs) == 0 {
		return nil
	}
	return agl.Errorf(agl.CodeConflict, "%s is of another run: %s; resume with the same settings or use another directory", path, strings.Join(diffs, ", "))
}

// WriteFileAtomic makes path hold data, durably, or leaves it as it was. A write
// that was interrupted leaves a file beside it that ends in .tmp.
func WriteFileAtomic(path string, data []byte) error {
	f, err := os.OpenFile(path+unfinishedSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return fmt.Errorf("create: %w", err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("put in place: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a rename in dir durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	return nil
}
