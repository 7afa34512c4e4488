// Package durable writes files and directories that survive a crash of the machine.
//
// It must not know what they hold.
package durable

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
)

// Unfinished matches, below a directory and the beginning of a name, the files that interrupted calls of [WriteFile] leave.
const Unfinished = ".tmp-*"

// WriteFile replaces the content of a file: after a crash it has either the old content or the new one. Readers never see
// a part of it.
func WriteFile(path string, data []byte) (err error) {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+Unfinished)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return SyncDir(dir)
}

// MkdirAll makes a directory and its parents.
func MkdirAll(dir string) error { return mkdirAll(dir, SyncDir) }

// mkdirAll syncs the parent of each directory that it makes.
func mkdirAll(dir string, sync func(dir string) error) error {
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
	if err := mkdirAll(parent, sync); err != nil {
		return err
	}
	// If another process has just made it, both sync.
	if err := os.Mkdir(dir, 0o750); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return sync(parent)
}

// SyncDir makes the names in a directory durable. It does nothing on Windows, which cannot sync directories.
func SyncDir(dir string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", dir, err)
	}
	return nil
}
