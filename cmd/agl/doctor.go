package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/cmd/agl/internal/doctor"
	"github.com/agl-go/agl/cmd/agl/internal/flags"
	"github.com/agl-go/agl/proxy"
	"github.com/agl-go/agl/trainer/runfile"
)

type doctorCommand struct {
	flags.Trust

	File      string        `arg:"" optional:"" help:"A run file. Default: ${runfile}, if there is one; otherwise only the store, the ports and --model are checked."`
	StoreURL  flags.URL     `name:"store" placeholder:"URL" help:"Base URL of the store. Default: where the file keeps the run; without a file AGL_STORE_URL, or http://localhost:4747."`
	Token     flags.Token   `env:"AGL_TOKEN" placeholder:"TOKEN" help:"The store's bearer token."`
	TokenFile string        `type:"home" env:"AGL_TOKEN_FILE" placeholder:"FILE" help:"In place of --token: a file with the token."`
	Model     []flags.Model `sep:"none" placeholder:"NAME=URL" help:"One more model to check, and the base URL of its backend; repeat it for several."`
	APIKey    flags.Token   `name:"api-key" env:"AGL_PROXY_API_KEY" placeholder:"KEY" help:"Key sent to the backends of --model, or env:NAME."`
	TextOnly  bool          `help:"Do not ask these backends for token ids and log-probabilities."`
	Timeout   time.Duration `default:"30s" help:"How long a store or a model may take to answer. Default: ${default}."`
	JSON      bool          `name:"json" help:"Print the result as one JSON object."`
	From      string        `type:"home" placeholder:"DIR" help:"Then run the first task once, with the weights that the run in this folder has trained, as agl train --dry-run does."`
}

func (c *doctorCommand) Validate() error {
	if _, err := os.Stat(defaultFile); c.File == "" && err == nil {
		c.File = defaultFile
	}
	if c.From != "" && c.File == "" {
		return fmt.Errorf("--from=%s: give the run file, too: there is no %s here", c.From, defaultFile)
	}
	if c.From != "" && c.JSON {
		return errors.New("--from shows a task as it runs; give it without --json")
	}
	if c.Timeout <= 0 {
		return fmt.Errorf("--timeout=%s: must be longer than 0", c.Timeout)
	}
	return nil
}

func (c *doctorCommand) run(ctx context.Context, out *console.Console) error {
	settings, err := c.TLS()
	if err != nil {
		return err
	}
	token, lookupEnv := string(c.Token), os.LookupEnv
	if c.File != "" {
		if token, lookupEnv, err = storeToken(c.Token, c.TokenFile); err != nil {
			return err
		}
	}
	d := doctor.New(doctor.Config{Timeout: c.Timeout, Token: token, TLS: settings, LookupEnv: lookupEnv})
	if c.File != "" {
		c.checkFile(ctx, d)
	}
	for _, m := range c.Model {
		d.Model(ctx, "model "+m.Name, proxy.Model{Name: m.Name, BaseURL: string(m.URL), APIKey: string(c.APIKey), TextOnly: c.TextOnly})
	}
	if err := c.checkStore(ctx, d); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if c.JSON {
		err = printFindings(out, d)
	} else {
		err = out.Styled(d.Print)
	}
	if failed := d.Count(doctor.Fail); err == nil && failed > 0 {
		err = fmt.Errorf("%s failed", console.Count(failed, "check"))
	}
	if err != nil || c.From == "" {
		return err
	}
	if err := out.Printf("\n"); err != nil {
		return err
	}
	try := trainCommand{Trust: c.Trust, File: c.File, DryRun: true, From: c.From, Log: flags.Log{LogLevel: flags.LogLevel(slog.LevelWarn)}}
	return try.run(ctx, out)
}

// checkStore checks a store that no file names.
func (c *doctorCommand) checkStore(ctx context.Context, d *doctor.Doctor) error {
	elsewhere := os.Getenv("AGL_STORE_URL")
	at := flags.Store{StoreURL: c.StoreURL, Token: c.Token, TokenFile: c.TokenFile, Trust: c.Trust}
	if c.StoreURL == "" && c.File != "" {
		return nil
	}
	if c.StoreURL == "" && elsewhere != "" {
		if err := at.StoreURL.UnmarshalText([]byte(elsewhere)); err != nil {
			d.Addf("store", doctor.Fail, "change AGL_STORE_URL, or give --store", "AGL_STORE_URL: %v", err)
			return nil
		}
	}
	to, err := at.Config()
	switch {
	case err != nil:
		return err
	case to.URL == "":
		d.Defaults(ctx, to)
	default:
		d.Store(ctx, to)
	}
	return nil
}

// checkFile checks a run file and, if it has no mistakes, what it names.
func (c *doctorCommand) checkFile(ctx context.Context, d *doctor.Doctor) {
	file, err := runfile.Read(c.File, runfile.Options{})
	if wrong, ok := errors.AsType[*runfile.Error](err); ok {
		for line := range strings.SplitSeq(wrong.Error(), "\n") {
			d.Addf("run file", doctor.Fail, "", "%s", line)
		}
		return
	}
	if err != nil {
		d.Addf("run file", doctor.Fail, "name a file that can be read; agl init writes one", "%v", err)
		return
	}
	d.Addf("run file", doctor.OK, "", "%s: %s", c.File, describeRun(file))
	d.Run(ctx, file, c.StoreURL == "")
}

func printFindings(out *console.Console, d *doctor.Doctor) error {
	return out.JSON(document{struct {
		Checks   []doctor.Finding `json:"checks"`
		Failed   int              `json:"failed"`
		Warnings int              `json:"warnings"`
	}{d.Findings, d.Count(doctor.Fail), d.Count(doctor.Warn)}})
}
