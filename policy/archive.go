package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/tinker"
)

// archive keeps checkpoints. Paths are valid when they arrive.
type archive interface {
	// reserve makes a model id of the given prefix that was never used here.
	reserve(prefix string) (string, error)
	// put stores a new checkpoint, durably where the archive is durable; a path that exists is a conflict.
	put(p tinker.Path, data []byte) error
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

func (a *memoryArchive) put(p tinker.Path, data []byte) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.files[p]; ok {
		return taken(p)
	}
	a.files[p] = data
	return nil
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

// dirArchive keeps each checkpoint in the file <dir>/<model>/<kind>/<name>.ckpt. Several processes may share a
// directory: each model id belongs to the one that made it.
type dirArchive struct {
	dir string
}

func (a dirArchive) file(p tinker.Path) string {
	return filepath.Join(a.dir, p.Model, string(p.Kind), p.Name+".ckpt")
}

func (a dirArchive) reserve(prefix string) (string, error) {
	if err := os.MkdirAll(a.dir, 0o750); err != nil {
		return "", fmt.Errorf("policy: make checkpoint directory: %w", err)
	}
	for i := 1; ; i++ {
		id := fmt.Sprintf("%s-%d", prefix, i)
		err := os.Mkdir(filepath.Join(a.dir, id), 0o750)
		if err == nil {
			return id, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("policy: make model directory: %w", err)
		}
	}
}

// put writes a temporary file beside the target, syncs it and renames it, so that a crash leaves either the
// whole checkpoint or none.
func (a dirArchive) put(p tinker.Path, data []byte) (err error) {
	target := a.file(p)
	dir := filepath.Dir(target)
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("policy: save checkpoint: %w", err)
	}
	if _, err := os.Lstat(target); err == nil {
		return taken(p)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("policy: save checkpoint: %w", err)
	}
	tmp, err := os.CreateTemp(dir, p.Name+".tmp-*")
	if err != nil {
		return fmt.Errorf("policy: save checkpoint: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(tmp.Name()))
		}
	}()
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return fmt.Errorf("policy: save checkpoint: %w", err)
	}
	if err := os.Rename(tmp.Name(), target); err != nil {
		return fmt.Errorf("policy: save checkpoint: %w", err)
	}
	return syncDir(dir)
}

// syncDir makes a rename durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("policy: save checkpoint: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("policy: save checkpoint: sync %s: %w", dir, err)
	}
	return nil
}

func (a dirArchive) get(p tinker.Path) ([]byte, error) {
	data, err := os.ReadFile(a.file(p))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, unknown(p)
	}
	if err != nil {
		return nil, fmt.Errorf("policy: load checkpoint: %w", err)
	}
	return data, nil
}

func (a dirArchive) remove(p tinker.Path) error {
	err := os.Remove(a.file(p))
	if errors.Is(err, fs.ErrNotExist) {
		return unknown(p)
	}
	if err != nil {
		return fmt.Errorf("policy: delete checkpoint: %w", err)
	}
	return nil
}
