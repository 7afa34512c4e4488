package main

import (
	"context"
	"errors"
	"net/http"
	"os"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/tinker/server"
	"github.com/agl-go/agl/trainer/job"
)

type serveCommand struct {
	flags.Listen `set:"port=4750"`
	flags.Trust
	flags.Log `set:"logLevel=info"`

	Run    string `arg:"" type:"existingdir" placeholder:"DIR" help:"The output folder of a run that has trained weights (grpo, sft)."`
	APIKey string `name:"api-key" env:"AGL_SERVE_API_KEY" placeholder:"KEY" help:"Require this key of every request, as a bearer token."`
}

func (serveCommand) Help() string {
	return "Any OpenAI client can call it: OPENAI_BASE_URL=http://127.0.0.1:4750/v1. The weights are the last ones of the run; those of a remote engine " +
		"are loaded there.\n\nExample:\n  agl serve runs/agl\n  curl http://127.0.0.1:4750/v1/chat/completions --json " +
		"'{\"model\": \"policy\", \"messages\": [{\"role\": \"user\", \"content\": \"largest of 4 8 5?\"}]}'"
}

func (c *serveCommand) Validate() error {
	return c.Check(c.APIKey != "", "set --api-key (or AGL_SERVE_API_KEY), or allow it with --no-auth")
}

func (c *serveCommand) run(ctx context.Context, out *console.Console) (err error) {
	log := c.Logger(out.Err)
	settings, err := c.TLS()
	if err != nil {
		return err
	}
	trained, err := job.OpenTrained(ctx, c.Run, job.Config{LookupEnv: os.LookupEnv, TLS: settings, Logger: log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, trained.Close(context.WithoutCancel(ctx))) }()
	listener, err := c.OpenPort(ctx)
	if err != nil {
		return err
	}
	if err := out.Printf("model %s at %s/v1\n", trained.Name, c.URL(listener)); err != nil {
		return errors.Join(err, listener.Close())
	}
	mux := http.NewServeMux()
	mux.Handle("/v1/", guard(c.APIKey, trained.Handler))
	return service{name: "the model of " + c.Run, handler: mux, listen: &c.Listen, log: log}.serve(ctx, out, listener)
}

// guard requires an API key, as X-API-Key or as a bearer token.
func guard(key string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !server.Authorized(r, key) {
			refuse(w, http.StatusUnauthorized, "invalid_api_key", "no API key, or a wrong one: send it as a bearer token or as X-API-Key")
			return
		}
		next.ServeHTTP(w, r)
	})
}
