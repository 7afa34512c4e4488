package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/agl-go/agl/policy"
	"github.com/agl-go/agl/tinker/chat"
	"github.com/agl-go/agl/tinker/server"
)

type policyCommand struct {
	Serve policyServeCommand `cmd:"" help:"Serve the embedded policy over the Tinker protocol."`
}

type policyServeCommand struct {
	listenFlags
	logFlags
	Port    port   `default:"4749" help:"Port to listen on; 0 takes a free one."`
	APIKey  string `name:"api-key" env:"TINKER_API_KEY" placeholder:"KEY" help:"Ask this X-API-Key of every request."`
	Dir     string `type:"path" placeholder:"DIRECTORY" help:"Keep checkpoints here, so that a later server has them. Default: in memory."`
	Name    string `default:"agl-policy" help:"Name of the base model."`
	Vocab   int    `placeholder:"N" help:"Number of token ids. Default: those of the characters and role marks of the built-in chat format."`
	Context int    `default:"48" help:"Longest sequence in tokens."`
	Layers  int    `default:"2" help:"Transformer blocks."`
	Dim     int    `default:"64" help:"Width of the residual stream, a multiple of 16 times the heads."`
	Heads   int    `default:"4" help:"Attention heads."`
	FF      int    `name:"ff" default:"256" help:"Width of the feed-forward layers, a multiple of 16."`

	engine *policy.Service
}

// Help is shown below the flags.
func (policyServeCommand) Help() string {
	return "Clients are Tinker's Python SDK (TINKER_BASE_URL) and the client of this project. Models and sampler snapshots live in this process, " +
		"checkpoints in --dir.\n\nExample:\n  agl policy serve --dir weights\n  TINKER_BASE_URL=http://127.0.0.1:4749 TINKER_API_KEY=tml-x python train.py"
}

// Validate is called by kong.
func (c *policyServeCommand) Validate() (err error) {
	if c.Vocab == 0 {
		characters, err := chat.NewCharacters("")
		if err != nil {
			return err
		}
		c.Vocab = characters.Vocab()
	}
	c.engine, err = policy.NewService(policy.Config{
		Name: c.Name, Vocab: c.Vocab, Context: c.Context, Layers: c.Layers, Dim: c.Dim, Heads: c.Heads, FF: c.FF, Dir: c.Dir,
	})
	if err != nil {
		return err
	}
	return c.check(c.APIKey != "", "set --api-key (or TINKER_API_KEY), or allow it with --no-auth")
}

func (c *policyServeCommand) run(ctx context.Context, m *Main) (err error) {
	log := c.logger(m.Stderr)
	handler, err := server.New(server.Config{Service: c.engine, APIKey: c.APIKey, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, handler.Close()) }()
	listener, err := listen(ctx, c.Host, c.Port)
	if err != nil {
		return err
	}
	stop := func() {
		if err := handler.Close(); err != nil {
			log.Warn("policy: close", "error", fmt.Sprint(err))
		}
	}
	return service{name: "policy", handler: handler, drain: stop, drainTimeout: c.DrainTimeout, log: log}.serve(ctx, m, listener)
}
