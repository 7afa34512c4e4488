//go:build examples

package examples_test

import (
	"bufio"
	"bytes"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/test/process"
)

// TestExport reads exported weights with the safetensors package. The program in
// docs/policy-serve.md must give the same reply as the served model.
func TestExport(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/policy-serve.md")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile("(?s)```python\n([^`]*safetensors.*?)```").FindSubmatch(page)
	if found == nil {
		t.Fatal("the page has no program that reads the weights")
	}
	dir := process.Dir(t)
	agl := func(args ...string) {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), program, args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("agl %s: %v\n%s", args, err, out)
		}
	}
	agl("init", ".", "--template", "shell")
	file := filepath.Join(dir, "agl.yaml")
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(shorter.Replace(string(text))), 0o600)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "model.py"), found[1], 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	agl("train")
	agl("policy", "export", "runs/agl", "exported")
	url := served(t, dir)
	for _, question := range []string{"largest of 3 0 4?", "largest of 7 1 2?", "largest of 5 6 8?", "3?", "no"} {
		cmd := exec.CommandContext(t.Context(), filepath.Join(os.Getenv("AGL_EXAMPLES_VENV"), "bin", "python"), "model.py", question)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("model.py: %v\n%s", err, out)
		}
		if got, want := strings.TrimSuffix(string(out), "\n"), greedy(t, url, question); got != want {
			t.Errorf("%s: in NumPy %q, served %q", question, got, want)
		}
	}
}

// served serves the run in a folder, and returns the base URL.
func served(t *testing.T, dir string) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, "serve", "runs/agl", "--port", "0")
	cmd.Dir = dir
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cmd.Process.Kill(); err != nil {
			t.Error(err)
		}
		_ = cmd.Wait() // it was killed
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	_, url, _ := strings.Cut(strings.TrimSpace(line), " at ")
	return url
}

// greedy returns the most likely reply.
func greedy(t *testing.T, url, question string) string {
	t.Helper()
	body, err := json.Marshal(map[string]any{"model": "policy", "temperature": 0, "messages": []map[string]string{{"role": "user", "content": question}}})
	if err != nil {
		t.Fatal(err)
	}
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/chat/completions", bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	var reply struct {
		Choices []struct {
			Message struct{ Content string }
		}
	}
	if err := json.UnmarshalRead(response.Body, &reply, json.MatchCaseInsensitiveNames(true)); err != nil || len(reply.Choices) != 1 {
		t.Fatalf("%s: %v", response.Status, err)
	}
	return reply.Choices[0].Message.Content
}
