package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/policydir"
	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/trainer/job"
)

type policyExportCommand struct {
	From    string `arg:"" type:"existingdir" placeholder:"DIR" help:"The output folder of a run that has trained the embedded policy, or the directory of a model of agl policy create."`
	To      string `arg:"" type:"path" placeholder:"FOLDER" help:"Where to write model.safetensors and config.json: a folder that has neither, created if it does not exist."`
	Weights string `placeholder:"PATH" help:"With the directory of a model: the tinker:// path of saved weights. Default: the weights that every model starts from."`
	Agent   string `placeholder:"NAME" help:"With a run of several agents: whose weights. Default: those of the first that is trained."`
}

// exportedConfig is config.json beside exported weights.
type exportedConfig struct {
	ModelType string `json:"model_type"`
	policydir.Model
	VocabSize  int            `json:"vocab_size"`
	Activation string         `json:"activation"`
	NormEps    float64        `json:"norm_eps"`
	Marks      map[string]int `json:"marks,omitzero"` // token ids
}

func (c *policyExportCommand) run(ctx context.Context, out *console.Console) error {
	model, weights, err := c.find()
	if err != nil {
		return err
	}
	tokenizer, err := model.Tokenizer()
	if err != nil {
		return err
	}
	cfg, err := model.Config(policy.Config{}).Checked()
	if err != nil {
		return err
	}
	described := exportedConfig{ModelType: "agl-policy", Model: model, VocabSize: cfg.Vocab, Activation: "relu", NormEps: policy.NormEps}
	if tokenizer != nil {
		described.Marks = map[string]int{}
		for name, mark := range map[string]chat.Mark{"user": chat.MarkUser, "assistant": chat.MarkAssistant, "tool": chat.MarkTool, "end": chat.MarkEnd} {
			described.Marks[name] = int(tokenizer.Mark(mark))
		}
	}
	tensors, config := filepath.Join(c.To, "model.safetensors"), filepath.Join(c.To, "config.json")
	for _, file := range []string{tensors, config} {
		if _, err := os.Lstat(file); err == nil {
			return agl.Errorf(agl.CodeConflict, "%s is there already; name another folder, or move it away", file)
		} else if !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	if err := durable.MkdirAll(c.To); err != nil {
		return err
	}
	if err := out.WriteFile(ctx, tensors, func(w io.Writer) error { return policy.Export(cfg, weights, w) }); err != nil {
		return err
	}
	if err := durable.WriteJSON(config, described, jsontext.Multiline(true)); err != nil {
		return err
	}
	return out.Printf("wrote %s and %s\n", tensors, config)
}

// find returns the model and the file with its weights.
func (c *policyExportCommand) find() (model policydir.Model, weights string, err error) {
	if _, err := os.Lstat(policydir.ModelFile(c.From)); err == nil {
		if c.Agent != "" {
			return model, "", fmt.Errorf("--agent=%s: is for the output folder of a run, and %s is the directory of a model", c.Agent, c.From)
		}
		if model, err = policydir.Read(c.From); err != nil {
			return model, "", fmt.Errorf("%s: %w", c.From, err)
		}
		if c.Weights == "" {
			return model, policydir.WeightsFile(c.From), nil
		}
		path, err := tinker.ParsePath(c.Weights)
		if err != nil {
			return model, "", fmt.Errorf("--weights: %w", err)
		}
		return model, policy.WeightsFile(c.From, path), nil
	}
	if c.Weights != "" {
		return model, "", fmt.Errorf("--weights=%s: is for the directory of a model, and %s has no model.json", c.Weights, c.From)
	}
	trained, err := job.TrainedPolicy(c.From, c.Agent)
	if err != nil {
		return model, "", err
	}
	model, err = policydir.Of(trained.Config, trained.Characters)
	return model, trained.Config.Base, err
}
