package output

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agl-go/agl"
)

func TestFolderIsOneRunsAlone(t *testing.T) {
	t.Parallel()
	p := Params{Path: filepath.Join(t.TempDir(), "out"), Source: Source{Path: "agl.yaml", Text: []byte("agent: …\n")}, Version: "v1", Algorithm: "baseline"}
	held, err := Open(p)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(p); !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), "in use by process ") {
		t.Errorf("while a run is there: %v", err)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	for want, p := range map[string]Params{
		"is not empty (x)":             {Path: folderWith(t, "x")},
		"has no run to resume":         {Path: t.TempDir(), Resume: true},
		"so there is no run to resume": {Path: filepath.Join(t.TempDir(), "none"), Resume: true},
		"move the folder away":         {Path: folderWith(t, RecordFile)},
	} {
		if _, err := Open(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// A folder is gone when it was moved or deleted, also if another one is in its place.
func TestFolderGone(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		act  func(path string) error
		want bool
	}{
		"there":        {func(string) error { return nil }, false},
		"lock deleted": {func(path string) error { return os.Remove(filepath.Join(path, lockFile)) }, false},
		"moved":        {func(path string) error { return os.Rename(path, path+"-2") }, true},
		"deleted":      {os.RemoveAll, true},
		"made anew": {func(path string) error {
			return errors.Join(os.RemoveAll(path), os.MkdirAll(filepath.Join(path, "policy"), 0o755))
		}, true},
		"another run": {func(path string) error {
			err := os.Rename(path, path+"-2")
			for _, name := range []string{lockFile, ConfigFile} {
				err = errors.Join(err, os.MkdirAll(path, 0o755), os.WriteFile(filepath.Join(path, name), nil, 0o600))
			}
			return err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f, err := Open(Params{Path: filepath.Join(t.TempDir(), "out"), Source: Source{Path: "agl.yaml"}})
			if err != nil {
				t.Fatal(err)
			}
			if err := test.act(f.Path); err != nil {
				t.Fatal(err)
			}
			if got := f.Gone(); got != test.want {
				t.Errorf("gone %v, want %v", got, test.want)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// A run that did something keeps its folder, unless it is overwritten.
func TestFolderOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	p := Params{Path: filepath.Join(t.TempDir(), "out"), Source: Source{Path: "agl.yaml"}}
	run := func(p Params, state State, metrics string) string {
		t.Helper()
		f, err := Open(p)
		if err != nil {
			t.Fatal(err)
		}
		f.End(state, nil)
		if err := errors.Join(os.WriteFile(f.File("metrics.jsonl"), []byte(metrics), 0o600), f.Save(), f.Close()); err != nil {
			t.Fatal(err)
		}
		return filepath.Base(f.Path)
	}
	run(p, StateFailed, "")
	run(p, StateInterrupted, "{}\n") // the one before did nothing
	if _, err := Open(p); !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), "has a run that is not finished; resume it with --resume") {
		t.Errorf("a folder that is taken: %v", err)
	}
	numbered := p
	numbered.Numbered = true
	for _, want := range []string{"out-2", "out-3"} {
		if got := run(numbered, StateFinished, ""); got != want {
			t.Errorf("got folder %s, want %s", got, want)
		}
	}
	over := p
	over.Overwrite = true
	if err := os.WriteFile(filepath.Join(p.Path, "left"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if got := run(over, StateFinished, ""); got != "out" {
		t.Errorf("overwritten: %s", got)
	}
	if _, err := os.Stat(filepath.Join(p.Path, "left")); err == nil {
		t.Error("a file of the earlier run is left")
	}
	// What is no run is not removed.
	if _, err := Open(Params{Path: folderWith(t, "x"), Overwrite: true}); !errors.Is(err, agl.ErrConflict) {
		t.Errorf("a folder of something else: %v", err)
	}
}

// A run that goes on removes what the process that was killed had not finished.
func TestFolderOfAKilledRun(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "out[1]")
	source := Source{Path: "agl.yaml", Text: []byte("agent: …\n")}
	for _, resume := range []bool{false, true} {
		f, err := Open(Params{Path: dir, Resume: resume, Source: source})
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range []string{RecordFile, ConfigFile} {
			half := f.File(file + ".tmp-17")
			if _, err := os.Stat(half); err == nil {
				t.Errorf("%s is left", half)
			}
			if err := os.WriteFile(half, []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
}

// A run that was killed as it began, or while it replaced another one, does not keep its folder.
func TestFolderOfAKilledStart(t *testing.T) {
	t.Parallel()
	for name, files := range map[string][]string{
		"the record was half written":   {lockFile, RecordFile + ".tmp-17"},
		"the run file was half written": {lockFile, RecordFile, ConfigFile + ".tmp-17"},
		"another run was half removed":  {lockFile, RecordFile, "versions.json"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for _, file := range files {
				text := ""
				if file == RecordFile {
					text = `{"id": "ru-1", "state": "running"}`
				}
				if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			if _, _, err := Read(dir); !errors.Is(err, agl.ErrNotFound) || !strings.Contains(err.Error(), "has no run: ") {
				t.Errorf("to resume it: %v", err)
			}
			f, err := Open(Params{Path: dir, Source: Source{Path: "agl.yaml", Text: []byte("agent: …\n")}})
			if err != nil {
				t.Fatal(err)
			}
			if err := f.Close(); err != nil {
				t.Error(err)
			}
			got, err := filepath.Glob(filepath.Join(dir, "*"))
			if err != nil || len(got) != 3 {
				t.Errorf("the folder has %v, %v; want the lock, the record and the run file", got, err)
			}
		})
	}
}

// What a run has done may be in its store alone.
func TestFolderOfARunThatWorked(t *testing.T) {
	t.Parallel()
	p := Params{Path: filepath.Join(t.TempDir(), "out"), Source: Source{Path: "agl.yaml"}}
	p.Worked = func(folder string) bool { return folder == p.Path }
	f, err := Open(p)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(p); !errors.Is(err, agl.ErrConflict) || !strings.Contains(err.Error(), "has a run that is not finished") {
		t.Errorf("error %v", err)
	}
}

func folderWith(t *testing.T, name string) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, name), []byte("?"), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}
