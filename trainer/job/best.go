package job

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"errors"
	"io/fs"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/trainer/algorithms"
	"github.com/agl-go/agl/trainer/output"
)

// bestDir has the best resources of a run.
const (
	bestDir  = "best"
	bestFile = "best.json"
)

// best is the content of best/best.json.
type best struct {
	// Prompts are the prompt templates, in files beside this one.
	Prompts []bestPrompt `json:"prompts,omitzero"`
	// Weights is the engine's path of the last checkpoint. WeightsFile is the file in
	// which the embedded engine keeps it, relative to the output folder; Engine is the
	// URL of the remote engine that has it.
	Weights     string `json:"weights,omitzero"`
	WeightsFile string `json:"weights_file,omitzero"`
	Engine      string `json:"engine,omitzero"`
	// Agents are the weights of the agents after the first, if the run has several, by name.
	Agents map[string]agentWeights `json:"agents,omitzero"`
	// Improved is true if the prompts are better than those of the run file, or if the
	// weights earn more on the validation tasks than the first ones did; null if that
	// is not known.
	Improved agl.Null[bool] `json:"improved"`
}

// agentWeights are like those of best.
type agentWeights struct {
	Weights     string `json:"weights"`
	WeightsFile string `json:"weights_file,omitzero"`
}

// bestPrompt is a prompt template in a file.
type bestPrompt struct {
	Name   string           `json:"name"`
	File   string           `json:"file"`
	Engine agl.PromptEngine `json:"engine"`
}

// writeBest writes the best resources into the folder of a run; nil writes nothing.
func (c Config) writeBest(folder *output.Folder, found *algorithms.Best) (err error) {
	if found == nil {
		return nil
	}
	b := best{Weights: found.Weights, Improved: found.Improved}
	file := func(weights string) string { return weightsFile(folder, weights) }
	if e := c.File.Engine; e != nil && e.Tinker != nil && b.Weights != "" {
		b.Engine = e.Tinker.Client.URL
		file = func(string) string { return "" }
	}
	b.WeightsFile = file(found.Weights)
	for name, weights := range found.Agents {
		if b.Agents == nil {
			b.Agents = map[string]agentWeights{}
		}
		b.Agents[name] = agentWeights{weights, file(weights)}
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("write the best resources: %w", err)
		}
	}()
	const dirMode = 0o755
	dir := folder.File(bestDir)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return err
	}
	prompts := agl.Resources(c.File.Prompts)
	if found.Prompts != nil {
		prompts = found.Prompts
	}
	for _, one := range prompts {
		template, ok := one.Resource.(agl.PromptTemplate)
		if !ok {
			continue
		}
		name := fileName(one.Name) + ".txt"
		b.Prompts = append(b.Prompts, bestPrompt{Name: one.Name, File: name, Engine: template.Engine})
		if err := durable.WriteFile(filepath.Join(dir, name), []byte(template.Template)); err != nil {
			return err
		}
	}
	return durable.WriteJSON(filepath.Join(dir, bestFile), b, jsontext.Multiline(true), json.Deterministic(true))
}

// weightsFile is the file in which the embedded engine keeps a checkpoint, relative
// to the output folder; empty if there is none.
func weightsFile(folder *output.Folder, weights string) string {
	path, err := tinker.ParsePath(weights)
	if err != nil {
		return ""
	}
	name := policy.WeightsFile(weightsDir, path)
	if _, err := os.Stat(folder.File(name)); err != nil {
		return ""
	}
	return name
}

// fileName turns the name of a resource into a file name.
func fileName(name string) string {
	clean := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_', r == '.':
			return r
		}
		return '_'
	}, name)
	return strings.TrimLeft(clean, ".")
}

// trainedWeights reads where a run has left its weights.
func trainedWeights(folder string) (b best, err error) {
	path := filepath.Join(folder, bestDir, bestFile)
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return b, agl.Errorf(agl.CodeNotFound, "%s has no trained weights: there is no %s, which a run of grpo or sft writes when it ends", folder, path)
	}
	if err == nil {
		err = json.Unmarshal(data, &b)
	}
	switch {
	case err != nil:
		return b, fmt.Errorf("read %s: %w", path, err)
	case b.Weights == "":
		return b, agl.Errorf(agl.CodeNotFound, "%s names no weights: the run has made no checkpoint, or tunes prompts, which are in the files beside it", path)
	case b.Engine == "" && b.WeightsFile == "":
		return b, agl.Errorf(agl.CodeNotFound, "%s: the file with the weights %s was not kept", path, b.Weights)
	}
	return b, nil
}
