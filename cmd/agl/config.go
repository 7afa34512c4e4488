package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/agl-go/agl/cmd/agl/internal/console"
	"github.com/agl-go/agl/proxy/configfile"
	"github.com/agl-go/agl/trainer/runfile"
)

// configCommand is about the files that configure this program.
type configCommand struct {
	Check  configCheckCommand  `cmd:"" help:"Report every mistake in a run file with its line, without running it."`
	Schema configSchemaCommand `cmd:"" help:"Print the JSON Schema of run files, for editors."`
}

// kindFlags choose the kind of file.
type kindFlags struct {
	Proxy bool `help:"The configuration of agl proxy instead of a run file."`
}

type configSchemaCommand struct {
	kindFlags
}

func (c *configSchemaCommand) run(_ context.Context, out *console.Console) error {
	schema := runfile.Schema
	if c.Proxy {
		schema = configfile.Schema
	}
	return out.Printf("%s", schema())
}

type configCheckCommand struct {
	kindFlags
	Files []string `arg:"" optional:"" name:"file" help:"The files. Default: ${runfile}."`
}

func (c *configCheckCommand) Validate() error {
	if len(c.Files) == 0 {
		if c.Proxy {
			return errors.New("give the proxy's file")
		}
		c.Files = []string{defaultFile}
	}
	return nil
}

func (c *configCheckCommand) run(_ context.Context, out *console.Console) error {
	mistakes, bad := 0, 0
	var failed []error
	for _, path := range c.Files {
		summary, err := c.check(path)
		wrong, isMistakes := errors.AsType[*runfile.Error](err)
		switch {
		case isMistakes:
			mistakes, bad = mistakes+len(wrong.Mistakes), bad+1
			summary = wrong.Error()
		case err != nil: // the other files are checked all the same
			failed = append(failed, err)
			continue
		}
		if err := out.Printf("%s\n", summary); err != nil {
			return err
		}
	}
	if bad > 0 {
		failed = append(failed, fmt.Errorf("%s in %d of %s", console.Count(mistakes, "mistake"), bad, console.Count(len(c.Files), "file")))
	}
	return errors.Join(failed...)
}

// check returns the line to print for a file without mistakes.
func (c *configCheckCommand) check(path string) (summary string, err error) {
	if c.Proxy {
		data, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		file, err := configfile.Parse(path, data)
		if err != nil {
			return "", err
		}
		return fmt.Sprintf("%s: no mistakes: a proxy of %s", path, console.Count(len(file.Proxy.Models), "backend")), nil
	}
	file, err := runfile.Read(path, runfile.Options{})
	if err != nil {
		return "", err
	}
	return path + ": no mistakes: " + describeRun(file), nil
}

// describeRun describes a run file in a few words.
func describeRun(f *runfile.File) string {
	learns := f.Algorithm.Name()
	if settings := f.Algorithm.Describe(); settings != "" {
		learns += ", " + settings
	}
	agent := "with agents elsewhere"
	if len(f.Agent.Process.Command) > 0 {
		agent = "with " + strings.Join(f.Agent.Process.Command, " ")
	}
	return fmt.Sprintf("%s %s, results in %s", learns, agent, f.Output)
}
