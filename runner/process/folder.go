package process

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/agl-go/agl"
)

// attemptFolder holds the files of an attempt.
type attemptFolder struct {
	root string // holds the rest
	work string // the working directory
}

func (f attemptFolder) task() string      { return filepath.Join(f.root, "task.json") }
func (f attemptFolder) resources() string { return filepath.Join(f.root, "resources.json") }
func (f attemptFolder) result() string    { return filepath.Join(f.root, resultFile) }

const resultFile = "result.json"

// checkTempDir reports where no folder of an attempt could be made, before one is taken.
func (c *Config) checkTempDir() error {
	dir, err := os.MkdirTemp(c.TempDir, "agl-")
	if err == nil {
		err = os.Remove(dir)
	}
	if err != nil {
		return agl.Errorf(agl.CodeInvalid, "no folder for an attempt can be made in %s; set TMPDIR to a folder that can be written to: %w", c.TempDir, err)
	}
	return nil
}

// makeFolder makes the folder of an attempt and writes the files that the program reads.
func (c *Config) makeFolder(task agl.Task) (attemptFolder, error) {
	root, err := os.MkdirTemp(c.TempDir, "agl-"+fileName(task.Attempt.AttemptID)+"-")
	if err != nil {
		return attemptFolder{}, err
	}
	f := attemptFolder{root: root, work: c.Dir}
	if f.work == "" {
		f.work = filepath.Join(root, "work")
		err = os.Mkdir(f.work, 0o700)
	}
	if err == nil {
		err = os.WriteFile(f.task(), task.Input(), 0o600)
	}
	if err == nil {
		err = os.WriteFile(f.resources(), task.Resources.AppendJSON(nil), 0o600)
	}
	if err == nil && c.User != nil {
		err = f.chown(*c.User, c.Dir == "")
	}
	if err != nil {
		c.removeFolder(f)
	}
	return f, err
}

// chown makes a user the owner of the folder, whose files other processes of the user can replace from then on.
func (f attemptFolder) chown(to User, work bool) error {
	paths := []string{f.task(), f.resources()}
	if work {
		paths = append(paths, f.work)
	}
	for _, path := range append(paths, f.root) {
		if err := os.Chown(path, int(to.UID), int(to.GID)); err != nil {
			return err
		}
	}
	return nil
}

// makeKeptFolder makes the working directory of a process that is kept. remove removes it, unless Keep is set.
func (c *Config) makeKeptFolder() (dir string, remove func(), err error) {
	if dir, err = os.MkdirTemp(c.TempDir, "agl-kept-"); err != nil {
		return "", nil, err
	}
	remove = func() { c.removeFolder(attemptFolder{root: dir}) }
	if c.User != nil {
		if err := os.Chown(dir, int(c.User.UID), int(c.User.GID)); err != nil {
			remove()
			return "", nil, err
		}
	}
	return dir, remove, nil
}

// removeFolder removes the folder of an attempt or of a kept process, unless Keep is set.
func (c *Config) removeFolder(f attemptFolder) {
	if c.Keep {
		return
	}
	if err := os.RemoveAll(f.root); err != nil {
		c.Logger.Warn("an agent's folder was not removed", "folder", f.root, "error", err)
	}
}

// fileName returns an id as a part of a file name.
func fileName(id string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, id)
}
