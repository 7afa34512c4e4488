package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/algorithm/apo"
	"github.com/agl-go/agl/algorithm/apo/apotest"
	"github.com/agl-go/agl/bench/internal/bench"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/runner"
)

// result is the result of a search.
type result struct {
	prompt  string
	seconds float64
}

// python runs the Python package's class, with its Trainer's processes and store.
func (b *comparison) python(ctx context.Context, seed int) (result, error) {
	port, err := httpserver.FreePort(ctx)
	if err != nil {
		return result{}, err
	}
	o := b.opt
	args := []string{"-W", "ignore", o.Script, "--models", b.models.server.URL + "/v1", "--prompt", b.world.Seed[0].Prompt}
	for name, value := range map[string]int{
		"port": port, "seed": seed, "runners": o.Runners, "beam": o.Beam, "branch": o.Branch, "rounds": o.Rounds,
		"gradient-batch": o.GradientBatch, "val-batch": o.ValBatch, "train": o.Train, "val": o.Val,
	} {
		args = append(args, "--"+name, strconv.Itoa(value))
	}
	cmd := exec.CommandContext(ctx, filepath.Join(o.Venv, "bin", "python"), args...)
	cmd.Env = append(os.Environ(), "LITELLM_LOCAL_MODEL_COST_MAP=True", "DO_NOT_TRACK=1", "AGENTOPS_API_KEY=", "PYTHONDONTWRITEBYTECODE=1")
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return result{}, fmt.Errorf("%s: %w\n%s", o.Script, err, stderr.String())
	}
	lines := strings.Split(strings.TrimSpace(stdout.String()), "\n")
	var said struct {
		Prompt  string  `json:"prompt"`
		Seconds float64 `json:"seconds"`
	}
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &said); err != nil {
		return result{}, fmt.Errorf("%s printed no result: %w\n%s\n%s", o.Script, err, stdout.String(), stderr.String())
	}
	return result{prompt: said.Prompt, seconds: said.Seconds}, nil
}

// ours runs package apo, with a store server on a SQLite file and runners that reach it over HTTP.
func (b *comparison) ours(ctx context.Context, seed int) (r result, err error) {
	dir, err := os.MkdirTemp("", "agl-bench-apo-")
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server, err := bench.Start(ctx, "/v1/agl/health", nil, b.opt.Agl, "store", "--db", "sqlite:"+filepath.Join(dir, "agl.db"), "--log-level", "error")
	if err != nil {
		return r, err
	}
	defer server.Stop()
	store, err := client.New(client.Config{URL: server.URL})
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, store.Close()) }()
	work, err := b.agent()
	if err != nil {
		return r, err
	}
	agents, err := runner.New(runner.Config{Store: store, Agent: work, Workers: b.opt.Runners})
	if err != nil {
		return r, err
	}
	serving, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- agents.Run(serving) }()
	defer func() {
		stop()
		err = errors.Join(err, <-ended)
	}()
	a, err := b.apo(seed, filepath.Join(dir, "out"))
	if err != nil {
		return r, err
	}
	began := time.Now()
	err = a.Run(ctx, agl.AlgorithmInput{
		Store: store, Train: apotest.Tasks(b.opt.Train), Val: apotest.Tasks(b.opt.Val),
		InitialResources: agl.Resources{{Name: "main", Resource: agl.PromptTemplate{Template: b.world.Seed[0].Prompt, Engine: agl.PromptFString}}},
	})
	if err != nil {
		return r, err
	}
	return result{prompt: a.Report().Best.Prompts[0].Prompt, seconds: time.Since(began).Seconds()}, nil
}

func (b *comparison) endpoint(model string) (*apo.Endpoint, error) {
	return apo.NewEndpoint(apo.EndpointConfig{BaseURL: b.models.server.URL + "/v1", Model: model, MaxAttempts: 1})
}

func (b *comparison) apo(seed int, dir string) (*apo.APO, error) {
	gradient, err := b.endpoint(critic)
	if err != nil {
		return nil, err
	}
	edit, err := b.endpoint(editor)
	if err != nil {
		return nil, err
	}
	o := b.opt
	return apo.New(apo.Config{
		RunConfig:     algorithm.RunConfig{Seed: uint64(seed), OutDir: dir},
		GradientModel: gradient, EditModel: edit, BeamWidth: o.Beam, BranchFactor: o.Branch, Rounds: o.Rounds,
		GradientBatch: o.GradientBatch, ValBatch: o.ValBatch,
	})
}

// agent returns an agent that sends the prompt to its model, whose reply is the reward.
func (b *comparison) agent() (agl.Agent, error) {
	model, err := b.endpoint(agent)
	if err != nil {
		return nil, err
	}
	return agl.AgentFunc(func(ctx context.Context, t agl.Task) (agl.Result, error) {
		var task struct {
			Question string `json:"question"`
		}
		if err := t.DecodeInput(&task); err != nil {
			return agl.Result{}, err
		}
		prompt, err := t.Resources.PromptTemplate()
		if err != nil {
			return agl.Result{}, err
		}
		text := strings.ReplaceAll(prompt.Template, "{question}", task.Question)
		reply, err := model.Complete(ctx, apo.Request{Messages: []apo.Message{{Role: "user", Content: text}}, Temperature: 1})
		if err != nil {
			return agl.Result{}, err
		}
		reward, err := strconv.ParseFloat(reply.Text, 64)
		return agl.RewardResult(reward), err
	}), nil
}
