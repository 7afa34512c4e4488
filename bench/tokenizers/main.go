// Command tokenizers compares this module's tokenizer with Python's tokenizers, one thread each, both with an empty word cache,
// on the Go source tree and the hard texts of test/tokenizers. It prints both CPU times and their ratio for every model.
package main

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/tinker/chat/tokenizer"
)

type options struct {
	Venv   string   `required:"" help:"A virtual environment with Python's tokenizers (test/tokenizers/setup.sh)." placeholder:"DIR"`
	Models string   `required:"" help:"The folder of models." placeholder:"DIR"`
	Model  []string `default:"qwen3,llama3,deepseek_v3,gemma3" help:"Which models."`
	Source string   `help:"The Go source tree; the default is that of the running toolchain." placeholder:"DIR"`
	Limit  int64    `default:"0" help:"At most so many bytes of source; 0 is all."`
	Rounds int      `default:"1" help:"How often each is run; the median of the ratios counts."`
}

func main() {
	runtime.GOMAXPROCS(1)
	bench.Main("tokenizers", "Measures the tokenizer against Python's, as a ratio.", run)
}

func run(ctx context.Context, opt options) error {
	texts, err := gather(ctx, opt)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "agl-bench-tokenizers")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	name := filepath.Join(dir, "texts.json")
	data, err := json.Marshal(texts)
	if err != nil {
		return err
	}
	if err := os.WriteFile(name, data, 0o600); err != nil {
		return err
	}
	size := 0
	for _, text := range texts {
		size += len(text)
	}
	fmt.Printf("%d texts, %.1f MB\n", len(texts), float64(size)/1e6)
	for _, model := range opt.Model {
		if err := compare(ctx, opt, model, texts, name, float64(size)/1e6); err != nil {
			return err
		}
	}
	return nil
}

// gather reads the source tree and the hard texts.
func gather(ctx context.Context, opt options) ([]string, error) {
	root := opt.Source
	if root == "" {
		out, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
		if err != nil {
			return nil, fmt.Errorf("go env GOROOT: %w", err)
		}
		root = filepath.Join(strings.TrimSpace(string(out)), "src")
	}
	var texts []string
	size := int64(0)
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || filepath.Ext(path) != ".go" {
			return err
		}
		if opt.Limit > 0 && size >= opt.Limit {
			return fs.SkipAll
		}
		data, err := os.ReadFile(path)
		if err == nil && utf8.Valid(data) {
			texts = append(texts, string(data))
			size += int64(len(data))
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	out, err := python(ctx, opt, "texts")
	if err != nil {
		return nil, err
	}
	var hard []string
	if err := json.Unmarshal(out, &hard); err != nil {
		return nil, err
	}
	return append(texts, hard...), nil
}

func python(ctx context.Context, opt options, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(opt.Venv, "bin", "python"), append([]string{"test/tokenizers/reference.py"}, args...)...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("test/tokenizers/reference.py %s: %w", args[0], err)
	}
	return out.Bytes(), nil
}

// took is the cost of encoding all texts.
type took struct {
	Seconds float64 `json:"seconds"` // of CPU
	IDs     int     `json:"ids"`
}

func compare(ctx context.Context, opt options, model string, texts []string, file string, megabytes float64) error {
	var ratios []float64
	for range opt.Rounds {
		ours, err := measure(filepath.Join(opt.Models, model, "tokenizer.json"), texts)
		if err != nil {
			return err
		}
		out, err := python(ctx, opt, "speed", filepath.Join(opt.Models, model), file)
		if err != nil {
			return err
		}
		var theirs took
		if err := json.Unmarshal(out, &theirs); err != nil {
			return err
		}
		if ours.IDs != theirs.IDs {
			return fmt.Errorf("%s: %d ids, and %d by the reference", model, ours.IDs, theirs.IDs)
		}
		ratios = append(ratios, theirs.Seconds/ours.Seconds)
		fmt.Printf("%-12s ours %6.2f MB/s   tokenizers %6.2f MB/s   %5.2f times   %d ids\n",
			model, megabytes/ours.Seconds, megabytes/theirs.Seconds, ratios[len(ratios)-1], ours.IDs)
	}
	fmt.Printf("%-12s %.2f times as fast (median of %d)\n", model, bench.Median(ratios), len(ratios))
	return nil
}

// measure encodes all texts with a freshly loaded tokenizer.
func measure(file string, texts []string) (took, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return took{}, err
	}
	tok, err := tokenizer.Load(data)
	if err != nil {
		return took{}, err
	}
	runtime.GC()
	n := 0
	spent, err := bench.Measure(func() error {
		var ids []int32
		for _, text := range texts {
			ids = tok.Append(ids[:0], text, tokenizer.Options{Added: true})
			n += len(ids)
		}
		return nil
	})
	return took{spent.CPU.Seconds(), n}, err
}
