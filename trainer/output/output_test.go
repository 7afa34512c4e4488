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
		"is not empty (x)":               {Path: folderWith(t, "x")},
		"has no run to resume":           {Path: t.TempDir(), Resume: true},
		"so there is no run to resume":   {Path: filepath.Join(t.TempDir(), "none"), Resume: true},
		"is not the record":              {Path: folderWith(t, RecordFile)},
		"has a run that is not finished": p,
	} {
		if _, err := Open(p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
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
