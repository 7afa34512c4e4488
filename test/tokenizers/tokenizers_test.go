//go:build tokenizers

package tokenizers_test

import (
	"bufio"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/tinker/chat/tokenizer"
)

// models are the models under test.
func models() []string { return []string{"qwen3", "llama3", "llama3_1", "deepseek_v3", "gemma3"} }

func environment(t testing.TB, name string) string {
	t.Helper()
	v := os.Getenv(name)
	if v == "" {
		t.Fatalf("%s is not set: run make tokenizers", name)
	}
	return v
}

func modelDir(t testing.TB, model string) string {
	t.Helper()
	return filepath.Join(environment(t, "AGL_TOKENIZERS_MODELS"), model)
}

func load(t testing.TB, model string) *tokenizer.Tokenizer {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(modelDir(t, model), "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(data)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

// reference runs a Python script of this folder and calls f with every line that it prints.
func reference(t testing.TB, f func(line []byte), script string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), filepath.Join(environment(t, "AGL_TOKENIZERS_VENV"), "bin", "python"), append([]string{script}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewReader(out)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			break
		}
		f(line)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
}

type encoded struct {
	Text       string  `json:"text"`
	IDs        []int32 `json:"ids"`
	Decoded    string  `json:"decoded"`
	Broken     []int32 `json:"broken"`
	BrokenText string  `json:"broken_text"`
}

// Ids and texts must equal the reference's on 10,000 texts, whole and streamed.
func TestSameIDs(t *testing.T) {
	t.Parallel()
	for _, model := range models() {
		t.Run(model, func(t *testing.T) {
			t.Parallel()
			tok := load(t, model)
			n, bad := 0, 0
			reference(t, func(line []byte) {
				var want encoded
				if err := json.Unmarshal(line, &want); err != nil {
					t.Fatal(err)
				}
				n++
				if problem := compare(tok, want); problem != "" {
					if bad++; bad <= 20 {
						t.Errorf("%q: %s", want.Text, problem)
					}
				}
			}, "reference.py", "strings", modelDir(t, model))
			t.Logf("%d of %d texts are identical", n-bad, n)
			if n < 10000 {
				t.Errorf("only %d texts", n)
			}
		})
	}
}

func compare(tok *tokenizer.Tokenizer, want encoded) string {
	ids := tok.Append(nil, want.Text, tokenizer.Options{Added: true})
	if !slices.Equal(ids, want.IDs) {
		return difference("ids", ids, want.IDs)
	}
	for _, c := range []struct {
		what string
		ids  []int32
		want string
	}{
		{"decoded", want.IDs, want.Decoded}, {"broken ids decoded", want.Broken, want.BrokenText},
	} {
		if got := tok.Decode(c.ids); got != c.want {
			return c.what + ": got " + quoted(got) + ", want " + quoted(c.want)
		}
		d := tok.NewDecoder()
		var streamed strings.Builder
		for _, id := range c.ids {
			streamed.WriteString(d.Add(id))
		}
		streamed.WriteString(d.Flush())
		if streamed.String() != c.want {
			return c.what + ", streamed: got " + quoted(streamed.String())
		}
	}
	alone, err := tok.Encode(want.Text)
	if err != nil {
		return err.Error()
	}
	if slices.ContainsFunc(alone, tok.Special) {
		return "text alone became a special token"
	}
	return ""
}

func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func difference(what string, got, want []int32) string {
	at := 0
	for at < len(got) && at < len(want) && got[at] == want[at] {
		at++
	}
	b, err := json.Marshal([][]int32{got[at:min(at+8, len(got))], want[at:min(at+8, len(want))]})
	if err != nil {
		return err.Error()
	}
	return what + " differ from id " + string(rune('0'+min(at, 9))) + " on, got and want: " + string(b)
}
