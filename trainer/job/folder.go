package job

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/trainer"
)

// What an output folder holds, besides what the algorithm leaves there.
const (
	configFile   = "config.yaml" // the run file as it was run
	recordFile   = "run.json"
	reportFile   = "report.md"
	metricsFile  = "metrics.jsonl"
	lockFile     = "run.lock"
	databaseFile = "agl.db"
	curvesDir    = "curves"
	bestDir      = "best"
)

// State says how a run stands.
type State string

// The states. A run that was killed stays running in its record.
const (
	StateRunning     State = "running"
	StateFinished    State = "finished"
	StateInterrupted State = "interrupted"
	StateFailed      State = "failed"
)

// Record is run.json: what a run is, and how it stands.
type Record struct {
	// Version of the program that began it.
	Version string `json:"version"`
	// Source is where the run file was read; relative paths in config.yaml start
	// from its folder.
	Source string `json:"source"`
	// Seed was given instead of the file's, if there is one.
	Seed      agl.Null[uint64] `json:"seed"`
	Algorithm string           `json:"algorithm"`
	State     State            `json:"state"`
	// Error is why it failed or was interrupted.
	Error string `json:"error,omitzero"`
	// Began is when it was begun, Ended when it last stood still.
	Began time.Time           `json:"began"`
	Ended agl.Null[time.Time] `json:"ended"`
	// Resumed counts how often it was gone on with.
	Resumed int `json:"resumed"`
	// Seconds of wall time and Usage of models, over all processes of the run.
	Seconds float64       `json:"seconds"`
	Usage   trainer.Usage `json:"usage"`
}

// folder is the output folder of a run, this process's alone while it is open.
type folder struct {
	path   string
	lock   *os.File
	record Record
	// before is what earlier processes have used.
	before struct {
		seconds float64
		usage   trainer.Usage
	}
	opened time.Time
}

func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// openFolder takes the folder for a new run, or for going on with the one there.
// finished is true when there is nothing to go on with.
func openFolder(cfg Config) (_ *folder, finished bool, err error) {
	path := cfg.File.Output
	if _, err := os.Stat(path); cfg.Resume && errors.Is(err, fs.ErrNotExist) {
		return nil, false, agl.Errorf(agl.CodeNotFound, "output: there is no folder %s, so that no run can go on there", path)
	}
	const dirMode = 0o755
	if err := os.MkdirAll(path, dirMode); err != nil {
		return nil, false, fmt.Errorf("output: %w", err)
	}
	lock, err := takeLock(filepath.Join(path, lockFile), path)
	if err != nil {
		return nil, false, err
	}
	f := &folder{path: path, lock: lock, opened: time.Now()}
	if err := f.begin(cfg); err != nil {
		return nil, false, errors.Join(err, f.close())
	}
	if f.record.State == StateFinished {
		return f, true, nil
	}
	f.record.State, f.record.Error, f.record.Ended = StateRunning, "", agl.Null[time.Time]{}
	if err := f.save(); err != nil {
		return nil, false, errors.Join(err, f.close())
	}
	return f, false, nil
}

// takeLock locks the folder for this process until it ends, however it ends.
func takeLock(name, path string) (*os.File, error) {
	const mode = 0o600
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, mode)
	if err != nil {
		return nil, fmt.Errorf("output: %w", err)
	}
	free, err := tryLock(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("output: lock %s: %w", name, err), f.Close())
	}
	if !free {
		holder, err := os.ReadFile(name)
		who := "another process"
		if pid := strings.TrimSpace(string(holder)); err == nil && pid != "" {
			who = "process " + pid
		}
		return nil, errors.Join(
			agl.Errorf(agl.CodeConflict, "output: %s is in use by %s, which is running there; wait for it, or name another folder", path, who), f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("output: lock %s: %w", name, err), f.Close())
	}
	return f, nil
}

// begin reads the record of the run in the folder, or makes that of a new one.
func (f *folder) begin(cfg Config) error {
	record, found, err := readRecord(f.path)
	switch {
	case err != nil:
		return err
	case cfg.Resume && !found:
		return agl.Errorf(agl.CodeNotFound, "output: %s holds no run to go on with", f.path)
	case cfg.Resume:
		f.record = record
		f.before.seconds, f.before.usage = record.Seconds, record.Usage
		if record.State != StateFinished {
			f.record.Resumed++
		}
		return nil
	case found && record.State == StateFinished:
		return agl.Errorf(agl.CodeConflict, "output: %s holds a run that is finished; name another folder, or remove that one", f.path)
	case found:
		return agl.Errorf(agl.CodeConflict, "output: %s holds a run that is not finished; go on with it by --resume, or name another folder", f.path)
	}
	entries, err := os.ReadDir(f.path)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	for _, e := range entries {
		if e.Name() != lockFile {
			return agl.Errorf(agl.CodeConflict, "output: %s is not empty (%s); a run needs a folder of its own", f.path, e.Name())
		}
	}
	source, err := filepath.Abs(cfg.Source.Path)
	if err != nil {
		return fmt.Errorf("output: %w", err)
	}
	f.record = Record{
		Version: cfg.Version, Source: source, Seed: cfg.Source.Seed, Algorithm: cfg.algorithmName(), Began: f.opened.UTC().Truncate(time.Millisecond),
	}
	if err := algorithm.WriteFileAtomic(f.file(configFile), cfg.Source.Text); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}

// Open reads what a folder says of its run: the record, and the run file as it
// was run. A folder without a run is agl.ErrNotFound.
func Open(path string) (Record, Source, error) {
	record, found, err := readRecord(path)
	if err != nil {
		return Record{}, Source{}, err
	}
	if !found {
		return Record{}, Source{}, agl.Errorf(agl.CodeNotFound, "%s holds no run: there is no file %s", path, recordFile)
	}
	text, err := os.ReadFile(filepath.Join(path, configFile))
	if err != nil {
		return Record{}, Source{}, fmt.Errorf("read the run in %s: %w", path, err)
	}
	return record, Source{Path: record.Source, Text: text, Seed: record.Seed}, nil
}

func readRecord(path string) (r Record, found bool, err error) {
	data, err := os.ReadFile(filepath.Join(path, recordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("read the record of the run: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, false, agl.Errorf(agl.CodeConflict, "%s is not the record of a run: %w", filepath.Join(path, recordFile), err)
	}
	return r, true, nil
}

// save writes the record.
func (f *folder) save() error {
	data, err := json.Marshal(f.record, json.Deterministic(true), jsontext.Multiline(true))
	if err == nil {
		err = algorithm.WriteFileAtomic(f.file(recordFile), append(data, '\n'))
	}
	if err != nil {
		return fmt.Errorf("write the record of the run: %w", err)
	}
	return nil
}

// spend notes what this process has used so far.
func (f *folder) spend(usage trainer.Usage) {
	f.record.Usage = f.before.usage.Plus(usage)
	f.record.Seconds = f.before.seconds + time.Since(f.opened).Seconds()
}

// end notes how the run stands when this process leaves it.
func (f *folder) end(failure error) {
	f.record.Ended = agl.Some(time.Now().UTC().Truncate(time.Millisecond))
	var interrupt *execution.InterruptError
	switch {
	case failure == nil:
		f.record.State = StateFinished
	case errors.As(failure, &interrupt) || agl.IsContextError(failure):
		f.record.State, f.record.Error = StateInterrupted, failure.Error()
	default:
		f.record.State, f.record.Error = StateFailed, failure.Error()
	}
}

// close lets go of the folder.
func (f *folder) close() error {
	if err := errors.Join(unlock(f.lock), f.lock.Close()); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}
