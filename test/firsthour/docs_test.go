package firsthour

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/agl-go/agl/test/process"
)

// TestOwnTask follows docs/own-task.md: it writes the files of the page and runs its
// commands, unchanged.
func TestOwnTask(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "own-task.md"))
	if err != nil {
		t.Fatal(err)
	}
	dir := process.Dir(t)
	files := regexp.MustCompile("(?s)\n`([a-z_.]+)`:\n\n```[a-z]+\n(.*?)```\n").FindAllStringSubmatch(string(page), -1)
	if len(files) != 3 {
		t.Fatalf("the page has %d files, want 3", len(files))
	}
	for _, f := range files {
		if err := os.WriteFile(filepath.Join(dir, f[1]), []byte(f[2]), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, steps, _ := strings.Cut(string(page), "## 4. Train\n\n")
	steps, _, _ = strings.Cut(steps, "\n\n")
	commands := strings.Split(steps, "\n")
	if len(commands) != 5 {
		t.Fatalf("the page has the commands %q, want 5", commands)
	}
	for _, command := range commands {
		cmd := exec.CommandContext(t.Context(), "sh", "-c", strings.TrimSpace(command))
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(binary)+string(filepath.ListSeparator)+os.Getenv("PATH"))
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", command, err, out)
		}
		t.Logf("%s\n%s", command, out)
	}
	best, err := os.ReadFile(filepath.Join(dir, "runs", "agl", "best", "best.json"))
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(best), `"improved": true`) {
		t.Errorf("the run has not learned: %s", best)
	}
	report, err := os.ReadFile(filepath.Join(dir, "runs", "agl", "report.html"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"<h2>Conversations before and after</h2>", "<h2>Worst tasks</h2>", `<span class="role">assistant</span>`, "<h2>Settings</h2>"} {
		if !strings.Contains(string(report), want) {
			t.Errorf("report.html lacks %q", want)
		}
	}
}
