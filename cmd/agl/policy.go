package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/cmd/agl/internal/policydir"
	"github.com/agl-go/agl/internal/durable"
	"github.com/agl-go/agl/internal/randomid"
	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/proxy/openai"
	"github.com/agl-go/agl/tinker"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/server"
)

type policyCommand struct {
	Create policyCreateCommand `cmd:"" help:"Write a fresh model into a directory, for serve."`
	Serve  policyServeCommand  `cmd:"" help:"Serve the embedded policy over the Tinker protocol, and as a chat model."`
	Export policyExportCommand `cmd:"" help:"Write trained weights as safetensors with a config, for other programs."`
}

type policyServeCommand struct {
	flags.Listen `set:"port=4749"`
	modelKeys
	flags.Log `set:"logLevel=info"`

	APIKey    flags.Token `name:"api-key" env:"TINKER_API_KEY" placeholder:"KEY" help:"Require this key of every request, as X-API-Key or as a bearer token."`
	Model     string      `type:"home" placeholder:"DIRECTORY" help:"Serve the model that agl policy create wrote here. Default: a model of the sizes below, with random weights drawn from the seed of each create_model."`
	Dir       string      `type:"home" placeholder:"DIRECTORY" help:"Keep checkpoints and sampler snapshots here, so that a later server can use them. Default: with --model, there; else in memory."`
	MaxModels int         `default:"64" help:"Refuse more models in training than this."`
	policydir.Sizes

	model  policydir.Model
	engine *policy.Service
}

func (c *policyServeCommand) Validate() (err error) {
	if c.MaxModels < 1 {
		return fmt.Errorf("--max-models=%d: must be at least 1", c.MaxModels)
	}
	cfg := policy.Config{Instance: randomid.Hex(4)}
	if c.Model == "" {
		if c.model, err = c.Checked(); err != nil {
			return err
		}
	} else {
		if flag := c.Given(); flag != "" {
			return fmt.Errorf("%s: the model in --model=%s has its sizes and its vocabulary", flag, c.Model)
		}
		if c.model, err = policydir.Read(c.Model); err != nil {
			return fmt.Errorf("--model=%s: %w", c.Model, err)
		}
		cfg.Base = policydir.WeightsFile(c.Model)
		c.Dir = cmp.Or(c.Dir, c.Model)
	}
	cfg.Dir, cfg.SaveSnapshots = c.Dir, c.Dir != ""
	if c.engine, err = policy.NewService(c.model.Config(cfg)); err != nil {
		return err
	}
	return c.Check(c.APIKey != "" || c.Store != "", "set --api-key (or TINKER_API_KEY), accept the keys of a store with --store, or allow it with --no-auth")
}

func (c *policyServeCommand) run(ctx context.Context, out *console.Console) (err error) {
	log := c.Logger(out.Err)
	if c.Dir != "" {
		if err := durable.MkdirAll(c.Dir); err != nil {
			return fmt.Errorf("--dir: %w", err)
		}
	}
	from, err := c.open(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	failed := newThrottle(log)
	cfg := server.Config{Service: c.engine, APIKey: string(c.APIKey), Access: from.keys, Audit: from.audit, Failed: failed, MaxModels: c.MaxModels, Logger: log}
	tokenizer, err := c.model.Tokenizer()
	if err != nil {
		return err
	}
	var chats http.Handler = http.HandlerFunc(noChat)
	if tokenizer != nil {
		cfg.Decode = tokenizer.Decode
		if chats, err = c.chat(ctx, chat.Config{Tokenizer: tokenizer, Renderer: chat.NewRoleMarks(tokenizer), Logger: log}); err != nil {
			return err
		}
	}
	handler, err := server.New(cfg)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, handler.Close()) }()
	mux := http.NewServeMux()
	mux.Handle("/", handler)
	mux.Handle("/v1/", guard(access.Guard{Key: string(c.APIKey), Keys: from.keys, Failed: failed}, chats))
	programs, err := ofPrograms(mux, c.APIKey != "" || from.keys != nil)
	if err != nil {
		return err
	}
	listener, err := c.OpenPort(ctx, log)
	if err != nil {
		return err
	}
	stop := func() {
		if err := handler.Close(); err != nil {
			log.Warn("policy: close", "error", fmt.Sprint(err))
		}
	}
	return service{name: "policy", handler: programs, drain: stop, listen: &c.Listen, log: log}.serve(ctx, out, listener)
}

// chat returns a chat server of the base model and of all saved weights.
func (c *policyServeCommand) chat(ctx context.Context, cfg chat.Config) (http.Handler, error) {
	cfg.Open = func(ctx context.Context, name string) (chat.Model, error) {
		if !strings.HasPrefix(name, "tinker://") {
			return chat.Model{}, agl.Errorf(agl.CodeNotFound, "the models are %s and the tinker:// paths of saved weights", c.model.Name)
		}
		client, err := c.engine.NewSamplingClient(ctx, tinker.NewSamplingClientParams{Path: name})
		return chat.Model{Client: client, Version: name}, err
	}
	s, err := chat.NewServer(cfg)
	if err != nil {
		return nil, err
	}
	base, err := c.engine.NewSamplingClient(ctx, tinker.NewSamplingClientParams{BaseModel: c.model.Name})
	if err != nil {
		return nil, err
	}
	s.SetModel(c.model.Name, chat.Model{Client: base, Version: c.model.Name})
	return s, nil
}

// noChat refuses chats with a model whose tokens stand for no text.
func noChat(w http.ResponseWriter, _ *http.Request) {
	refuse(w, openai.NewError(http.StatusNotFound, openai.InvalidRequestError, "no_vocabulary",
		"this model was made with --vocab, so its tokens stand for no text; a model made with --characters or --bytes can chat"))
}

type policyCreateCommand struct {
	Directory string `arg:"" type:"path" help:"Where to write it: a directory without a model, created if it does not exist."`
	Seed      uint64 `default:"0" help:"Seed of the random weights."`
	policydir.Sizes

	model policydir.Model
}

func (c *policyCreateCommand) Validate() (err error) {
	c.model, err = c.Checked()
	return err
}

// run writes the weights first and model.json last, atomically: a directory with a
// model.json has a whole model. Weights without one are left by an interrupted create.
func (c *policyCreateCommand) run(_ context.Context, out *console.Console) error {
	if _, err := os.Lstat(policydir.ModelFile(c.Directory)); err == nil {
		return agl.Errorf(agl.CodeConflict, "%s has a model already: %s exists", c.Directory, policydir.ModelFile(c.Directory))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("create a model: %w", err)
	}
	if err := os.Remove(policydir.WeightsFile(c.Directory)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("create a model: %w", err)
	}
	parameters, err := policy.Create(c.model.Config(policy.Config{}), c.Seed, policydir.WeightsFile(c.Directory))
	if err != nil {
		return err
	}
	if err := c.model.Write(c.Directory); err != nil {
		return err
	}
	return out.Printf("%s: model %s, %d parameters, %v, context %d\nserve it with: agl policy serve --model %s\n",
		c.Directory, c.model.Name, parameters, c.model.Vocabulary, c.model.Context, c.Directory)
}
