package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/tinker"
)

// archive keeps checkpoints. Its callers have validated the paths.
type archive interface {
	// reserve returns a new model id with the given prefix. No checkpoint exists under it.
	reserve(prefix string) (string, error)
	// put stores a checkpoint, durably if the archive is durable. An existing path is a conflict unless replace is set;
	// then readers see either the old checkpoint or the new one. put returns the path of the checkpoint, which may
	// differ from p in a dirArchive.
	put(p tinker.Path, data []byte, replace bool) (tinker.Path, error)
	// get returns a checkpoint. The caller must not change it.
	get(p tinker.Path) ([]byte, error)
	remove(p tinker.Path) error
}

// newArchive returns an archive in a directory, or in memory if dir is empty.
func newArchive(dir string) archive {
	if dir == "" {
		return &memoryArchive{}
	}
	return &dirArchive{dir: dir, models: map[string]*dirModel{}}
}

func taken(p tinker.Path) error {
	return agl.Errorf(agl.CodeConflict, "name: %v already exists; each name can be used once", p)
}

func unknown(p tinker.Path) error {
	return agl.Errorf(agl.CodeNotFound, "path: there are no weights %v", p)
}

// memoryArchive keeps checkpoints until the process ends.
type memoryArchive struct {
	models atomic.Int64
	files  sync.Map // of []byte by tinker.Path
}

func (a *memoryArchive) reserve(prefix string) (string, error) {
	return fmt.Sprintf("%s-%d", prefix, a.models.Add(1)), nil
}

func (a *memoryArchive) put(p tinker.Path, data []byte, replace bool) (tinker.Path, error) {
	if _, exists := a.files.LoadOrStore(p, data); exists && !replace {
		return p, taken(p)
	}
	a.files.Store(p, data)
	return p, nil
}

func (a *memoryArchive) get(p tinker.Path) ([]byte, error) {
	data, ok := a.files.Load(p)
	if !ok {
		return nil, unknown(p)
	}
	return data.([]byte), nil
}

func (a *memoryArchive) remove(p tinker.Path) error {
	if _, ok := a.files.LoadAndDelete(p); !ok {
		return unknown(p)
	}
	return nil
}

// staleAfter is the age at which the process that wrote a temporary file must have died: writing one takes seconds.
const staleAfter = time.Hour

// dirArchive keeps each checkpoint in the file <dir>/<model>/<kind>/<name>.ckpt. Several processes may share the
// directory. A process makes the directory of a model when it saves the model's first checkpoint, and owns it from then
// on. If another process has made a directory of that name since the id was reserved, the checkpoints go to the next
// free name, which their paths contain.
type dirArchive struct {
	dir string

	mu     sync.Mutex
	models map[string]*dirModel // by the ids that reserve returned
}

// dirModel is a model of this process.
type dirModel struct {
	prefix string
	number int
	made   bool // the directory exists
}

func (m *dirModel) id() string { return fmt.Sprintf("%s-%d", m.prefix, m.number) }

func (a *dirArchive) file(p tinker.Path) string {
	return WeightsFile(a.dir, p)
}

// WeightsFile is the file in which a [Service] keeps saved weights in its Config.Dir.
func WeightsFile(dir string, p tinker.Path) string {
	return filepath.Join(dir, p.Model, string(p.Kind), p.Name+".ckpt")
}

func (a *dirArchive) reserve(prefix string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err := durable.MkdirAll(a.dir); err != nil {
		return "", fmt.Errorf("policy: make the checkpoint directory: %w", err)
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

// claim makes the directory of a model if it has none yet, and returns the id in its name.
func (a *dirArchive) claim(id string) (string, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.models[id]
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
			return m.id(), durable.SyncDir(a.dir)
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", err
		}
		m.number++
	}
}

// sweep removes the temporary files of processes that died while they saved a checkpoint.
func (a *dirArchive) sweep() error {
	files, err := fs.Glob(os.DirFS(a.dir), "*/*weights/*"+durable.Unfinished) // the directory's own name is no pattern
	if err != nil {
		return err
	}
	for _, name := range files {
		file := filepath.Join(a.dir, name)
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
	model, err := a.claim(p.Model)
	if err != nil {
		return p, fmt.Errorf("policy: save checkpoint: %w", err)
	}
	p.Model = model
	target := a.file(p)
	if _, err := os.Lstat(target); err == nil && !replace {
		return p, taken(p)
	}
	err = durable.MkdirAll(filepath.Dir(target))
	if err == nil {
		err = durable.WriteFile(target, data)
	}
	if err != nil {
		return p, fmt.Errorf("policy: save checkpoint: %w", err)
	}
	return p, nil
}

func (a *dirArchive) get(p tinker.Path) ([]byte, error) {
	data, err := os.ReadFile(a.file(p))
	return data, archiveError("load", p, err)
}

func (a *dirArchive) remove(p tinker.Path) error {
	return archiveError("delete", p, os.Remove(a.file(p)))
}

// archiveError is the error of an operation on a checkpoint's file.
func archiveError(operation string, p tinker.Path, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return unknown(p)
	}
	return fmt.Errorf("policy: %s checkpoint: %w", operation, err)
}
