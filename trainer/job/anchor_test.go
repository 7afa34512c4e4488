package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

// TestAnchorIsCheckedFirst: a mistake in the demonstrations of the anchor is told before the warm start begins.
func TestAnchorIsCheckedFirst(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	const text = `
store: {listen: "127.0.0.1:0"}
engine: {policy: {context: 32, dim: 16, heads: 1, layers: 1, ff: 16, characters: "abcdefgsy ", warm_start: {file: demos.jsonl, steps: 5}}}
proxy: {listen: "127.0.0.1:0", sessions: {idle_timeout: 1m}}
algorithm: {online: {steps: 1, anchor: {file: anchor.jsonl}}}
`
	const ok = `{"messages":[{"role":"user","content":"say"},{"role":"assistant","content":"abc"}]}` + "\n"
	for name, content := range map[string]string{"demos.jsonl": ok, "anchor.jsonl": ok + strings.Replace(ok, "abc", "xyz", 1)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "agl.yaml")
	file, err := runfile.Parse(path, []byte(text), dir, runfile.Options{})
	if err != nil {
		t.Fatal(err)
	}
	result, err := Run(t.Context(), Config{File: file, Source: output.Source{Path: path, Text: []byte(text)}})
	if err == nil || !strings.Contains(err.Error(), "anchor.jsonl") || !strings.Contains(err.Error(), "conversation 2") {
		t.Fatalf("got %v", err)
	}
	if result == nil {
		return
	}
	if _, err := os.Stat(filepath.Join(result.Output, warmStartDir)); !os.IsNotExist(err) {
		t.Errorf("there is a warm start: %v", err)
	}
}
