package durable

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The parent of each new directory is synced, from the top; the parents of existing ones are not.
func TestMkdirAll(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	var got []string
	deep := filepath.Join(dir, "a", "b", "c")
	note := func(parent string) error {
		name, err := filepath.Rel(dir, parent)
		got = append(got, name)
		return err
	}
	for range 2 {
		if err := mkdirAll(deep, note); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{".", "a", filepath.Join("a", "b")}, got); diff != "" {
		t.Errorf("synced (-want +got):\n%s", diff)
	}
	if err := MkdirAll(filepath.Join(deep, "d")); err != nil {
		t.Error(err)
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, bad := range []string{file, filepath.Join(file, "a")} {
		if err := MkdirAll(bad); err == nil || !strings.Contains(err.Error(), "not a directory") {
			t.Errorf("%s: %v", bad, err)
		}
	}
}
