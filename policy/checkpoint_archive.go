package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// archive keeps checkpoints. Paths are valid when they arrive.
type archive interface {
	// reserve makes a model id of the given prefix that this archive never gave and that nothing is kept under.
	reserve(prefix string) (string, error)
	// put stores a checkpoint, durably where the archive is durable. A path that exists is a conflict, unless it is to
	// be replaced: then it has the old checkpoint or the new one at any time. It returns where the checkpoint is: p,
	// but for what dirArchive says.
	put(p tinker.Path, data []byte, replace bool) (tinker.Path, error)
	// get returns a checkpoint that the caller must not change.
	get(p tinker.Path) ([]byte, error)
	remove(p tinker.Path) error
}

func taken(p tinker.Path) error {
	return agl.Errorf(agl.CodeConflict, "name: %v exists already; each name can be used once", p)
}

func unknown(p tinker.Path) error {
	return agl.Errorf(agl.CodeNotFound, "path: there are no weights %v", p)
}

// memoryArchive keeps checkpoints for the life of the process.
type memoryArchive struct {
	mu     sync.Mutex
	models int
	files  map[tinker.Path][]byte
}

func (a *memoryArchive) reserve(prefix string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.models++
	return fmt.Sprintf("%s-%d", prefix, a.models), nil
}

func (a *memoryArchive) put(p tinker.Path, data []byte, replace bool) (tinker.Path, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.files[p]; ok && !replace {
		return p, taken(p)
	}
	a.files[p] = data
	return p, nil
}

func (a *memoryArchive) get(p tinker.Path) ([]byte, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	data, ok := a.files[p]
	if !ok {
		return nil, unknown(p)
	}
	return data, nil
}

func (a *memoryArchive) remove(p tinker.Path) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.files[p]; !ok {
		return unknown(p)
	}
	delete(a.files, p)
	return nil
}

// staleAfter is the age from which a temporary file is of a process that died: writing one takes seconds.
const staleAfter = time.Hour

// dirArchive keeps each checkpoint in the file <dir>/<model>/<kind>/<name>.ckpt. Several processes may share a
// directory: each model directory belongs to the one that made it, with the model's first checkpoint. When
// another process made one of the same name since the id was reserved, the model's checkpoints go to the next
// free one, and their paths say so.
type dirArchive struct {
	dir string

	mu     sync.Mutex
	models map[string]*dirModel // by the ids that reserve gave
}

// dirModel is a model of this process.
type dirModel struct {
	prefix string
	number int
	made   bool // the directory
}

func (m *dirModel) id() string { return fmt.Sprintf("%s-%d", m.prefix, m.number) }

func newDirArchive(dir string) *dirArchive {
	return &dirArchive{dir: dir, models: map[string]*dirModel{}}
}

func (a *dirArchive) file(p tinker.Path) string {
	return filepath.Join(a.dir, p.Model, string(p.Kind), p.Name+".ckpt")
}

func (a *dirArchive) reserve(prefix string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := MakeDirectory(a.dir); err != nil {
		return "", fmt.Errorf("policy: make checkpoint directory: %w", err)
	}
	for m := (&dirModel{prefix: prefix, number: 1}); ; m.number++ {
		if a.models[m.id()] != nil {
			continue
		}
		_, err := os.Lstat(filepath.Join(a.dir, m.id()))
		if errors.Is(err, fs.ErrNotExist) {
			a.models[m.id()] = m
			return m.id(), nil
		}
		if err != nil {
			return "", fmt.Errorf("policy: look for model directories: %w", err)
		}
	}
}

// claim makes the directory of a model that has none yet and returns the id that it is under.
func (a *dirArchive) claim(id string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.models[id]
	if m == nil {
		return "", agl.Errorf(agl.CodeNotFound, "model: %s is not of this archive", id)
	}
	if m.made {
		return m.id(), nil
	}
	if err := a.sweep(); err != nil {
		return "", err
	}
	for {
		err := os.Mkdir(filepath.Join(a.dir, m.id()), 0o750)
		if err == nil {
			m.made = true
			return m.id(), syncDir(a.dir)
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		m.number++
	}
}

// sweep removes what processes that died in the middle of a put left in any model's directory.
func (a *dirArchive) sweep() error {
	files, err := filepath.Glob(filepath.Join(a.dir, "*", "*weights", "*.tmp-*"))
	if err != nil {
		return err
	}
	for _, file := range files {
		info, err := os.Lstat(file)
		if err == nil && time.Since(info.ModTime()) > staleAfter {
			err = os.Remove(file)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func (a *dirArchive) put(p tinker.Path, data []byte, replace bool) (tinker.Path, error) {
	var err error
	if p.Model, err = a.claim(p.Model); err != nil {
		return p, fmt.Errorf("policy: save checkpoint: %w", err)
	}
	target := a.file(p)
	dir := filepath.Dir(target)
	if err := MakeDirectory(dir); err != nil {
		return p, fmt.Errorf("policy: save checkpoint: %w", err)
	}
	if _, err := os.Lstat(target); err == nil {
		if !replace {
			return p, taken(p)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return p, fmt.Errorf("policy: save checkpoint: %w", err)
	}
	if err := writeDurably(target, data); err != nil {
		return p, fmt.Errorf("policy: save checkpoint: %w", err)
	}
	return p, nil
}

func (a *dirArchive) get(p tinker.Path) ([]byte, error) {
	data, err := os.ReadFile(a.file(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unknown(p)
	}
	if err != nil {
		return nil, fmt.Errorf("policy: load checkpoint: %w", err)
	}
	return data, nil
}

func (a *dirArchive) remove(p tinker.Path) error {
	err := os.Remove(a.file(p))
	if errors.Is(err, fs.ErrNotExist) {
		return unknown(p)
	}
	if err != nil {
		return fmt.Errorf("policy: delete checkpoint: %w", err)
	}
	return nil
}
