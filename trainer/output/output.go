// Package output is the output folder of a run: the run file as it was run, the
// record of the run, and the lock by which one process owns the folder.
//
// It must not know what else a run writes there.
package output

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/internal/filelock"
	"github.com/agl-go/agl/trainer"
)

// The files of this package.
const (
	ConfigFile = "config.yaml" // the run file as it was run
	RecordFile = "run.json"
	lockFile   = "run.lock"
)

// State is that of a run.
type State string

// The states. A run that was killed stays running in its record.
const (
	StateRunning     State = "running"
	StateFinished    State = "finished"
	StateInterrupted State = "interrupted"
	StateFailed      State = "failed"
)

// Record is the content of run.json: what a run is, and its state.
type Record struct {
	// ID is that of the run in its store, and in the metadata of its rollouts.
	ID string `json:"id,omitzero"`
	// Version of the program that began the run.
	Version string `json:"version"`
	// Source is the path of the run file. Relative paths in config.yaml start from its folder.
	Source string `json:"source"`
	// Seed decides the random choices. SeedGiven says that it replaces that of the file.
	Seed      uint64 `json:"seed"`
	SeedGiven bool   `json:"seed_given,omitzero"`
	Algorithm string `json:"algorithm"`
	// StoreURL is that of the store server that was given instead of the run file's store, without a token.
	StoreURL string `json:"store_url,omitzero"`
	State    State  `json:"state"`
	// Error is why the run failed or was interrupted. Useless says that nothing can be
	// learned from what it did: it begins anew when it resumes, and the next run of the
	// file replaces it.
	Error   string `json:"error,omitzero"`
	Useless bool   `json:"useless,omitzero"`
	// Began is the beginning of the run, Ended the last end of one of its processes.
	Began time.Time           `json:"began"`
	Ended agl.Null[time.Time] `json:"ended"`
	// Resumed counts the resumptions.
	Resumed int `json:"resumed"`
	// Seconds of wall time and Usage of models, over all processes of the run.
	Seconds float64       `json:"seconds"`
	Usage   trainer.Usage `json:"usage"`
}

// Source is the text of a run file.
type Source struct {
	// Path is where it was read. Relative paths in it start from its folder.
	Path string
	Text []byte
	// Seed replaces that of the file, if there is one.
	Seed agl.Null[uint64]
}

// Params are the arguments of [Open].
type Params struct {
	// Path of the folder. It is created for a new run.
	Path string
	// Resume continues the run in the folder instead of beginning one there.
	Resume bool
	// Overwrite removes the run in the folder, if it has one. Numbered takes another
	// folder instead: the first of PATH-2, PATH-3, … without a run. A run that has done
	// nothing is replaced in any case.
	Overwrite, Numbered bool
	// Worked reports whether the run in a folder has done something that only its store
	// shows; nil means no.
	Worked func(folder string) bool
	// Source, Version, Algorithm and Seed are those of a new run. A run that resumes
	// keeps its own, but takes a Source that has a Text.
	Source    Source
	Version   string
	Algorithm string
	Seed      uint64
	// StoreURL is that of a store server, see [Record].
	StoreURL string
}

// Folder is the output folder of a run. It belongs to this process until Close.
type Folder struct {
	Path   string
	Record Record
	// Opened is when this process took the folder.
	Opened time.Time

	lock    *os.File
	made    []string // the folders that were made for it, the outermost first
	earlier Record   // as earlier processes left it
	kept    []byte   // the run file before it was corrected; nil if it was not
}

// File returns the path of a file in the folder.
func (f *Folder) File(name string) string { return filepath.Join(f.Path, name) }

// Gone reports whether the folder is no longer at its path: it was moved or deleted. Parts of the run that wrote since may have made
// another one there.
func (f *Folder) Gone() bool {
	held, err := f.lock.Stat()
	if err != nil {
		return false
	}
	found, err := os.Stat(f.File(lockFile))
	if err == nil {
		return !os.SameFile(held, found)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	_, err = os.Stat(f.File(ConfigFile)) // if it is there, somebody deleted the lock alone
	return errors.Is(err, fs.ErrNotExist)
}

// Open takes the folder for a new run, or to resume the one there. A run that is finished stays as it is: see Record.State.
func Open(p Params) (*Folder, error) {
	if _, err := os.Stat(p.Path); p.Resume && errors.Is(err, fs.ErrNotExist) {
		return nil, agl.Errorf(agl.CodeNotFound, "output: the folder %s does not exist, so there is no run to resume", p.Path)
	}
	for n := 1; ; n++ {
		path := p.Path
		if n > 1 {
			path += "-" + strconv.Itoa(n)
		}
		f, err := open(path, p)
		if _, taken := errors.AsType[*takenError](err); taken && p.Numbered {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("output: %w", err)
		}
		return f, nil
	}
}

// takenError says that a folder already has a run.
type takenError struct{ error }

func (e *takenError) Unwrap() error { return e.error }

// open takes one folder.
func open(path string, p Params) (_ *Folder, err error) {
	const dirMode = 0o755
	made := missing(path)
	if err := os.MkdirAll(path, dirMode); err != nil {
		return nil, err
	}
	lock, err := takeLock(filepath.Join(path, lockFile), path)
	if err != nil {
		return nil, err
	}
	f := &Folder{Path: path, lock: lock, made: made, Opened: time.Now()}
	if err = f.begin(p); err == nil && f.Record.State != StateFinished {
		f.Record.State, f.Record.Error, f.Record.Useless, f.Record.Ended = StateRunning, "", false, agl.Null[time.Time]{}
		err = f.Save()
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// missing returns the folders of a path that do not exist, the outermost first.
func missing(path string) (list []string) {
	for {
		if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
			return list
		}
		list = slices.Insert(list, 0, path)
		path = filepath.Dir(path)
	}
}

// takeLock locks the folder until this process ends, however it ends.
func takeLock(name, path string) (*os.File, error) {
	const mode = 0o600
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, mode)
	if err != nil {
		return nil, err
	}
	free, err := filelock.Try(f)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
	}
	if !free {
		holder, err := os.ReadFile(name)
		who := "another process"
		if pid := strings.TrimSpace(string(holder)); err == nil && pid != "" {
			who = "process " + pid
		}
		return nil, errors.Join(
			agl.Errorf(agl.CodeConflict, "%s is in use by %s, which runs there; wait for it, or name another folder", path, who), f.Close())
	}
	err = f.Truncate(0)
	if err == nil {
		_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("lock %s: %w", name, err), f.Close())
	}
	return f, nil
}

// begin reads the record of the run in the folder, or makes that of a new one.
func (f *Folder) begin(p Params) error {
	record, found, err := readRecord(f.Path)
	switch {
	case err != nil:
		return err
	case p.Resume && !found:
		return agl.Errorf(agl.CodeNotFound, "%s has no run to resume", f.Path)
	case p.Resume:
		for _, name := range []string{RecordFile, ConfigFile} {
			if err := durable.RemoveUnfinished(f.Path, name); err != nil { // of a process that was killed
				return err
			}
		}
		f.Record, f.earlier = record, record
		f.Record.StoreURL = p.StoreURL
		f.Record.ID = cmp.Or(record.ID, agl.NewRunID())
		if record.Useless {
			f.Record.ID = agl.NewRunID()
			if err := f.restart(); err != nil {
				return err
			}
		}
		corrected, err := f.correct(p)
		if record.State != StateFinished || corrected {
			f.Record.Resumed++
			f.Record.State = StateRunning
		}
		return err
	case found && (p.Overwrite || f.idle(&record, p.Worked)):
		if err := f.removeContents(); err != nil {
			return err
		}
	case found && record.State == StateFinished:
		return &takenError{agl.Errorf(agl.CodeConflict, "%s has a run that is finished; replace it with --overwrite, or name another folder", f.Path)}
	case found:
		return &takenError{agl.Errorf(agl.CodeConflict, "%s has a run that is not finished; resume it with --resume, replace it with --overwrite, or name another folder", f.Path)}
	}
	if err := durable.RemoveUnfinished(f.Path, RecordFile); err != nil { // of a process that was killed as it began
		return err
	}
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != lockFile {
			_ = os.Remove(f.File(lockFile)) // which was not there: it may stay where files in use cannot be removed
			return agl.Errorf(agl.CodeConflict, "%s is not empty (%s); a run needs a folder of its own", f.Path, e.Name())
		}
	}
	source, err := filepath.Abs(p.Source.Path)
	if err != nil {
		return err
	}
	f.Record = Record{
		ID: agl.NewRunID(), Version: p.Version, Source: source, Seed: p.Seed, SeedGiven: p.Source.Seed.Valid, Algorithm: p.Algorithm, Began: f.Opened.UTC().Truncate(time.Millisecond),
		StoreURL: p.StoreURL, State: StateRunning,
	}
	// The record first: a folder with a run file and no record is refused, because it may be of another program.
	if err := f.Save(); err != nil {
		return err
	}
	return durable.WriteFile(f.File(ConfigFile), p.Source.Text)
}

// correct takes another run file for a run that resumes, and reports whether it is
// another one. A finished run goes on with it, for example for more steps.
func (f *Folder) correct(p Params) (corrected bool, err error) {
	if p.Source.Text == nil {
		return false, nil
	}
	if p.Algorithm != f.Record.Algorithm {
		return false, agl.Errorf(agl.CodeConflict, "the run in %s is one of %s, and the run file names %s; start another run", f.Path, f.Record.Algorithm, p.Algorithm)
	}
	source, err := filepath.Abs(p.Source.Path)
	if err == nil {
		f.kept, err = os.ReadFile(f.File(ConfigFile))
	}
	if err == nil && bytes.Equal(f.kept, p.Source.Text) {
		f.kept = nil
		return false, nil
	}
	if err == nil {
		err = durable.WriteFile(f.File(ConfigFile), p.Source.Text)
	}
	if err != nil {
		return false, err
	}
	f.Record.Source = source
	return true, nil
}

// Earlier returns the record of the run as earlier processes left it, if this one goes on with another run file; otherwise nil.
func (f *Folder) Earlier() *Record {
	if f.kept == nil {
		return nil
	}
	earlier := f.earlier
	return &earlier
}

// Revert restores the run file and the record of a run that cannot go on with a
// corrected run file, and reports whether there was one.
func (f *Folder) Revert() (reverted bool, err error) {
	if f.kept == nil {
		return false, nil
	}
	f.Record = f.earlier
	if err := durable.WriteFile(f.File(ConfigFile), f.kept); err != nil {
		return true, fmt.Errorf("output: %w", err)
	}
	return true, f.Save()
}

// KeepStore restores the store of the earlier record: the algorithm has not begun at the one that this process was given.
func (f *Folder) KeepStore() { f.Record.StoreURL = f.earlier.StoreURL }

// restart removes what a run has done, but not its run file and its record.
func (f *Folder) restart() error {
	text, err := os.ReadFile(f.File(ConfigFile))
	if err == nil {
		err = f.removeContents()
	}
	if err == nil {
		err = f.Save()
	}
	if err == nil {
		err = durable.WriteFile(f.File(ConfigFile), text)
	}
	return err
}

// idle reports whether a run has ended, or was killed, before it did anything.
func (f *Folder) idle(r *Record, worked func(folder string) bool) bool {
	if r.Useless {
		return true
	}
	if r.State == StateFinished || r.Usage.Calls > 0 {
		return false
	}
	for _, name := range []string{"metrics.jsonl", "journal.jsonl", "checkpoints", "warmstart"} {
		if info, err := os.Stat(f.File(name)); !errors.Is(err, fs.ErrNotExist) && (err != nil || info.IsDir() || info.Size() > 0) {
			return false
		}
	}
	return worked == nil || !worked(f.Path)
}

// removeContents removes what the folder holds, besides its lock. The record goes last: a folder with one is known as
// that of a run, if this process is killed before the end.
func (f *Folder) removeContents() error {
	if err := durable.RemoveUnfinished(f.Path, RecordFile); err != nil { // of a process that was killed as it began
		return err
	}
	entries, err := os.ReadDir(f.Path)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() == lockFile || e.Name() == RecordFile {
			continue
		}
		if err := os.RemoveAll(f.File(e.Name())); err != nil {
			return err
		}
	}
	return os.RemoveAll(f.File(RecordFile))
}

// Read returns the record of the run in a folder, and the run file as it was run. A folder without a run is agl.ErrNotFound, a file
// agl.ErrInvalid.
func Read(path string) (Record, Source, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, Source{}, agl.Errorf(agl.CodeNotFound, "there is no folder %s; name the one that agl train has printed, such as runs/agl", path)
	}
	if err == nil && !info.IsDir() {
		return Record{}, Source{}, agl.Errorf(agl.CodeInvalid, "%s is a file; name the output folder that agl train has printed, such as runs/agl", path)
	}
	record, found, err := readRecord(path)
	if err != nil {
		return Record{}, Source{}, err
	}
	if !found {
		return Record{}, Source{}, agl.Errorf(agl.CodeNotFound, "%s has no run: there is no file %s", path, RecordFile)
	}
	text, err := os.ReadFile(filepath.Join(path, ConfigFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, Source{}, agl.Errorf(agl.CodeNotFound, "%s has no run: its process was ended before it began, there is no file %s; start it again", path, ConfigFile)
	}
	if err != nil {
		return Record{}, Source{}, fmt.Errorf("read the run in %s: %w", path, err)
	}
	source := Source{Path: record.Source, Text: text}
	if record.SeedGiven {
		source.Seed = agl.Some(record.Seed)
	}
	return record, source, nil
}

func readRecord(path string) (r Record, found bool, err error) {
	data, err := os.ReadFile(filepath.Join(path, RecordFile))
	if errors.Is(err, fs.ErrNotExist) {
		return Record{}, false, nil
	}
	if err != nil {
		return Record{}, false, fmt.Errorf("read the record of the run: %w", err)
	}
	if err := json.Unmarshal(data, &r); err != nil {
		return Record{}, false, agl.Errorf(agl.CodeConflict, "%s is not the record of a run: %w; restore that file, or move the folder away", filepath.Join(path, RecordFile), err)
	}
	return r, true, nil
}

// Save writes the record.
func (f *Folder) Save() error {
	if err := durable.WriteJSON(f.File(RecordFile), f.Record, jsontext.Multiline(true)); err != nil {
		return fmt.Errorf("write the record of the run: %w", err)
	}
	return nil
}

// Usage adds the usage of this process to that of earlier ones.
func (f *Folder) Usage(usage trainer.Usage) trainer.Usage { return f.earlier.Usage.Plus(usage) }

// Spend records what this process has used so far.
func (f *Folder) Spend(usage trainer.Usage) {
	f.Record.Usage = f.Usage(usage)
	f.Record.Seconds = f.earlier.Seconds + time.Since(f.Opened).Seconds()
}

// End records the state in which this process leaves the run.
func (f *Folder) End(state State, failure error) {
	f.Record.Ended = agl.Some(time.Now().UTC().Truncate(time.Millisecond))
	f.Record.State = state
	if failure != nil {
		f.Record.Error = failure.Error()
	}
}

// Discard closes the folder of a run that could not start, and leaves nothing of it.
// Folders that were there before stay.
func (f *Folder) Discard() error {
	err := f.removeContents()
	if err != nil {
		err = fmt.Errorf("output: %w", err)
	}
	if removed := os.Remove(f.File(lockFile)); removed == nil {
		err = errors.Join(err, f.Close())
	} else { // where files in use cannot be removed
		err = errors.Join(err, f.Close(), os.Remove(f.File(lockFile)))
	}
	for _, dir := range slices.Backward(f.made) {
		if os.Remove(dir) != nil {
			break // another run is in it
		}
	}
	return err
}

// Close releases the folder.
func (f *Folder) Close() error {
	if err := filelock.Release(f.lock); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	return nil
}
