package main

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"

	"github.com/agl-go/agl/access"
	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/trainer/job"
)

type serveCommand struct {
	flags.Listen `set:"port=4750"`
	modelKeys
	flags.Log `set:"logLevel=info"`

	Run    string      `arg:"" type:"existingdir" placeholder:"DIR" help:"The output folder of a run that has trained weights (grpo, sft)."`
	APIKey flags.Token `name:"api-key" env:"AGL_SERVE_API_KEY" placeholder:"KEY" help:"Require this key of every request, as a bearer token."`
}

func (c *serveCommand) Validate() error {
	return c.Check(c.APIKey != "" || c.Store != "", "set --api-key (or AGL_SERVE_API_KEY), accept the keys of a store with --store, or allow it with --no-auth")
}

func (c *serveCommand) run(ctx context.Context, out *console.Console) (err error) {
	log := c.Logger(out.Err)
	settings, err := c.TLS()
	if err != nil {
		return err
	}
	from, err := c.open(ctx, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.Close()) }()
	trained, err := job.OpenTrained(ctx, c.Run, job.Config{LookupEnv: os.LookupEnv, TLS: settings, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trained.Close(context.WithoutCancel(ctx))) }()
	listener, err := c.OpenPort(ctx, log)
	if err != nil {
		return err
	}
	models := "model " + trained.Name
	if len(trained.Others) > 0 {
		models = "models " + strings.Join(append([]string{trained.Name}, trained.Others...), ", ")
	}
	if err := out.Printf("%s at %s/v1\n", models, c.URL(listener)); err != nil {
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/", guard(access.Guard{Key: string(c.APIKey), Keys: from.keys, Failed: newThrottle(log)}, trained.Handler))
	handler, err := ofPrograms(mux, c.APIKey != "" || from.keys != nil)
	if err != nil {
		return errors.Join(err, listener.Close())
	}
	return service{name: "the model of " + c.Run, handler: handler, listen: &c.Listen, log: log}.serve(ctx, out, listener)
}
