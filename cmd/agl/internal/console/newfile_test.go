package console

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNewFile: a file has its name when it is complete, or not at all.
func TestNewFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "all.jsonl")
	broken := errors.New("broken")
	half := func(w io.Writer) error {
		_, err := io.WriteString(w, "half")
		return errors.Join(err, broken)
	}
	if err := new(Console).WriteFile(t.Context(), path, half); !errors.Is(err, broken) {
		t.Errorf("error is %v", err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Errorf("%v is left behind, %v", left, err)
	}
	gone := filepath.Join(dir, "gone", "all.jsonl")
	if err := new(Console).WriteFile(t.Context(), gone, half); !errors.Is(err, os.ErrNotExist) || !strings.HasPrefix(err.Error(), gone+": must be in a folder that exists and can be written to: ") {
		t.Errorf("in a folder that does not exist: %v", err)
	}
	whole := func(w io.Writer) error {
		_, err := io.WriteString(w, "whole")
		return err
	}
	if err := new(Console).WriteFile(t.Context(), path, whole); err != nil {
		t.Fatal(err)
	}
	if err := new(Console).WriteFile(t.Context(), path, half); err == nil {
		t.Error("a file that exists is replaced")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != "whole" {
		t.Errorf("the file holds %q, %v", text, err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
		t.Errorf("%v is there, %v", left, err)
	}
}
