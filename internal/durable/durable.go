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
	"syscall"

	"github.com/go-json-experiment/json"
)

// Unfinished matches, below a directory and the beginning of a name, the files that interrupted calls of [WriteFile] leave.
const Unfinished = ".tmp-*"

// RemoveUnfinished removes what interrupted calls of [WriteFile] for the files of a directory have left; name is the file's, "*" stands
// for all.
func RemoveUnfinished(dir, name string) error {
	files, err := fs.Glob(os.DirFS(dir), name+Unfinished) // the directory's own name is no pattern
	for _, file := range files {
		err = errors.Join(err, os.Remove(filepath.Join(dir, file)))
	}
	return err
}

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

// WriteJSON writes a value as JSON with [WriteFile]. The keys of maps are sorted, and the file ends with a newline.
func WriteJSON(path string, value any, options ...json.Options) error {
	data, err := json.Marshal(value, append(options, json.Deterministic(true))...)
	if err != nil {
		return err
	}
	return WriteFile(path, append(data, '\n'))
}

// Publish gives a complete file its name, durably. It returns os.ErrExist, and replaces nothing, if there is a file of that name.
func Publish(path, name string) error { return publish(path, name, os.Link) }

// publish uses link where the file system has hard links: unlike a rename, they do not replace a file that has appeared meanwhile.
// FAT and many network file systems have none. There an empty file takes the name first, and stays after a crash in between.
func publish(path, name string, link func(path, name string) error) error {
	err := link(path, name)
	switch {
	case err == nil:
		err = os.Remove(path)
	case !errors.Is(err, fs.ErrExist):
		var taken *os.File
		if taken, err = os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600); err != nil {
			return err
		}
		if err = taken.Close(); err == nil {
			err = os.Rename(path, name)
		}
		if err != nil {
			err = errors.Join(err, os.Remove(name))
		}
	}
	if err != nil {
		return err
	}
	err = SyncDir(filepath.Dir(name))
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil // a directory that can be written to and not read, or of a file system without it; the file is complete
	}
	return err
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
