package policy

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// writeDurably writes a temporary file beside the target, syncs it and renames it. After a crash, the target has either
// its old content or the new one.
func writeDurably(target string, data []byte) (err error) {
	dir := filepath.Dir(target)
	tmp, err := os.CreateTemp(dir, strings.TrimSuffix(filepath.Base(target), ".ckpt")+".tmp-*")
	if err != nil {
		return err
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
		return err
	}
	if err := os.Rename(tmp.Name(), target); err != nil {
		return err
	}
	return syncDir(dir)
}

// MakeDirectory makes a directory and its parents, durably.
func MakeDirectory(dir string) error { return makeDirectory(dir, syncDir) }

// makeDirectory syncs the parent of each directory that it makes.
func makeDirectory(dir string, sync func(dir string) error) error {
	info, err := os.Stat(dir)
	if err == nil && info.IsDir() {
		return nil
	}
	if err == nil {
		return fmt.Errorf("%s is not a directory", dir)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := makeDirectory(parent, sync); err != nil {
		return err
	}
	// If another process has just made it, both sync.
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return sync(parent)
}

// syncDir makes the entries of a directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
