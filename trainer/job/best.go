package job

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/tinker"
)

// Best is best/best.json: the best resources of a run so far.
type Best struct {
	// Prompts are the prompt templates, by name, in files beside this one.
	Prompts []BestPrompt `json:"prompts,omitzero"`
	// Weights is the engine's path of the last checkpoint; WeightsFile the file in
	// which the embedded engine keeps it, from the output folder on, Engine the URL of
	// the engine elsewhere that has it. They are empty before the first checkpoint, and
	// when nothing trains weights.
	Weights     string `json:"weights,omitzero"`
	WeightsFile string `json:"weights_file,omitzero"`
	Engine      string `json:"engine,omitzero"`
	// Improved is true when prompts are better than those the run began with.
	Improved bool `json:"improved"`
}

// BestPrompt is a prompt template in a file.
type BestPrompt struct {
	Name   string           `json:"name"`
	File   string           `json:"file"`
	Engine agl.PromptEngine `json:"engine"`
}

// writeBest keeps the best resources where a person finds them.
func (r *run) writeBest(result *Result) error {
	best := Best{}
	resources := r.cfg.File.Prompts
	switch {
	case result.APO != nil && len(result.APO.Best.Resources) > 0:
		resources, best.Improved = result.APO.Best.Resources, result.APO.Improved
	case result.GRPO != nil || result.SFT != nil:
		if result.GRPO != nil {
			best.Weights = result.GRPO.Weights
		} else {
			best.Weights = result.SFT.Weights
		}
		if t := r.cfg.File.Engine.Tinker; t == nil {
			best.WeightsFile = r.weightsFile(best.Weights)
		} else if best.Weights != "" {
			best.Engine = t.Client.URL
		}
	}
	const dirMode = 0o755
	dir := r.folder.file(bestDir)
	if err := os.MkdirAll(dir, dirMode); err != nil {
		return fmt.Errorf("write the best resources: %w", err)
	}
	var failed error
	for _, one := range resources {
		template, ok := one.Resource.(agl.PromptTemplate)
		if !ok {
			continue
		}
		name := fileName(one.Name) + ".txt"
		best.Prompts = append(best.Prompts, BestPrompt{Name: one.Name, File: name, Engine: template.Engine})
		failed = errors.Join(failed, algorithm.WriteFileAtomic(filepath.Join(dir, name), []byte(template.Template)))
	}
	data, err := json.Marshal(best, json.Deterministic(true), jsontext.Multiline(true))
	if err == nil {
		err = algorithm.WriteFileAtomic(filepath.Join(dir, "best.json"), append(data, '\n'))
	}
	if err = errors.Join(failed, err); err != nil {
		return fmt.Errorf("write the best resources: %w", err)
	}
	return nil
}

// weightsFile is where the embedded engine keeps a checkpoint, from the output
// folder on; empty when it keeps none there.
func (r *run) weightsFile(weights string) string {
	path, err := tinker.ParsePath(weights)
	if err != nil {
		return ""
	}
	name := filepath.Join(weightsDir, path.Model, string(path.Kind), path.Name+".ckpt")
	if _, err := os.Stat(r.folder.file(name)); err != nil {
		return ""
	}
	return name
}

// fileName is a resource's name as that of a file.
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
