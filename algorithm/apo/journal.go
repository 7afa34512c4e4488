package apo

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
)

const (
	journalFile   = "journal.jsonl"
	journalFormat = "agl-apo-1"
)

// header is the journal's first line.
type header struct {
	Format string `json:"format"`
	// Run tells the rollouts and resources of searches in one store apart.
	Run string `json:"run"`
	// Identity is what the search's results depend on.
	Identity map[string]string `json:"identity"`
}

// entry is one complete result, of a model call or of a batch of rollouts.
type entry struct {
	// Key is the result's place in the search.
	Key   string `json:"key"`
	Call  *call  `json:"call,omitzero"`
	Trial *trial `json:"trial,omitzero"`
}

// call is a model call that was answered.
type call struct {
	Reply

	Round int   `json:"round"`
	Price Price `json:"price"`
}

// trial is the scores of a candidate on a batch of tasks.
type trial struct {
	Scores   []agl.Null[float64]    `json:"scores"` // by task; null when masked
	Rollouts int                    `json:"rollouts"`
	Masked   map[algorithm.Mask]int `json:"masked"`
}

// journal keeps every complete result by its place in the search, and in a file
// when there is one.
type journal struct {
	header header

	mu     sync.Mutex // guards what follows
	file   *os.File   // nil keeps nothing beyond the run
	calls  map[string]call
	trials map[string]trial
}

// openJournal reads the journal in dir, or begins one. A last line that was not
// written to its end is cut off. A journal of another identity is
// agl.ErrConflict. With dir empty there is no file.
func openJournal(dir string, identity map[string]string) (*journal, error) {
	const runID = 8
	j := &journal{
		header: header{Format: journalFormat, Run: strings.ToLower(rand.Text()[:runID]), Identity: identity},
		calls:  map[string]call{}, trials: map[string]trial{},
	}
	if dir == "" {
		return j, nil
	}
	const dirMode, fileMode = 0o750, 0o600
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	path := filepath.Join(dir, journalFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, fmt.Errorf("open journal: %w", err)
	}
	j.file = f
	if err := j.load(path); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return j, nil
}

func (j *journal) load(path string) error {
	data, err := io.ReadAll(j.file)
	if err != nil {
		return fmt.Errorf("read journal: %w", err)
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	if err := j.file.Truncate(int64(len(whole))); err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	if _, err := j.file.Seek(int64(len(whole)), io.SeekStart); err != nil {
		return fmt.Errorf("open journal: %w", err)
	}
	if len(whole) == 0 {
		return j.write(j.header)
	}
	number := 0
	for line := range bytes.Lines(whole) {
		number++
		if err := j.read(number, line); err != nil {
			return agl.Errorf(agl.CodeConflict, "%s:%d: %w; use another directory, or the one of this run", path, number, err)
		}
	}
	return nil
}

func (j *journal) read(number int, line []byte) error {
	if number == 1 {
		var h header
		if err := json.Unmarshal(line, &h); err != nil {
			return fmt.Errorf("not the head of a journal: %w", err)
		}
		if h.Format != journalFormat {
			return fmt.Errorf("its format is %q, this version reads %q", h.Format, journalFormat)
		}
		if err := sameIdentity(h.Identity, j.header.Identity); err != nil {
			return err
		}
		j.header.Run = h.Run
		return nil
	}
	var e entry
	if err := json.Unmarshal(line, &e); err != nil {
		return fmt.Errorf("not an entry of a journal: %w", err)
	}
	j.keep(e)
	return nil
}

// sameIdentity names every difference.
func sameIdentity(stored, given map[string]string) error {
	var diffs []string
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if stored[name] != given[name] {
			diffs = append(diffs, fmt.Sprintf("%s is %s here and %s there", name, given[name], stored[name]))
		}
	}
	if diffs == nil {
		return nil
	}
	return fmt.Errorf("the journal is of another search: %s", strings.Join(diffs, ", "))
}

func (j *journal) keep(e entry) {
	if e.Call != nil {
		j.calls[e.Key] = *e.Call
	}
	if e.Trial != nil {
		j.trials[e.Key] = *e.Trial
	}
}

// put keeps a result, durably when there is a file.
func (j *journal) put(e entry) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.file != nil {
		if err := j.write(e); err != nil {
			return err
		}
	}
	j.keep(e)
	return nil
}

func (j *journal) write(line any) error {
	data, err := json.Marshal(line, json.Deterministic(true))
	if err == nil {
		_, err = j.file.Write(append(data, '\n'))
	}
	if err == nil {
		err = j.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write journal: %w", err)
	}
	return nil
}

func (j *journal) call(key string) (call, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	c, ok := j.calls[key]
	return c, ok
}

func (j *journal) trial(key string) (trial, bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	t, ok := j.trials[key]
	return t, ok
}

// spent sums the calls of the rounds up to the one given.
func (j *journal) spent(round int) Spent {
	j.mu.Lock()
	defer j.mu.Unlock()
	var s Spent
	for _, key := range slices.Sorted(maps.Keys(j.calls)) { // sums of floats depend on the order
		if c := j.calls[key]; c.Round <= round {
			s.add(c.Usage, c.Price)
		}
	}
	return s
}

// tally counts the rollouts of all trials, and those that are masked.
func (j *journal) tally() (rollouts int, masked map[algorithm.Mask]int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	masked = map[algorithm.Mask]int{}
	for _, t := range j.trials {
		rollouts += t.Rollouts
		for mask, n := range t.Masked {
			masked[mask] += n
		}
	}
	return rollouts, masked
}

func (j *journal) close() error {
	if j.file == nil {
		return nil
	}
	return j.file.Close()
}
