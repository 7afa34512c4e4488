package job

import (
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/rest"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/runfile"
)

// Config says what to run, and which part of it in this process.
type Config struct {
	// File is what to run. Required.
	File *runfile.File
	// Source is where File comes from; it is kept in the output folder.
	Source Source
	// Resume goes on with the run in File.Output instead of beginning one there.
	Resume bool

	// Role is this process's part; empty is both. The role runner has no output
	// folder: it runs agents on the rollouts of a store.
	Role execution.Role
	// StoreURL is a store elsewhere; it wins over what the file says.
	StoreURL string

	// Version of the program, for the record.
	Version string
	// Environ is what agents start from, usually os.Environ().
	Environ []string
	// LookupEnv resolves secrets of the form env:NAME; nil resolves none.
	LookupEnv func(name string) (value string, ok bool)
	// Reaper ends what agents leave behind; nil ends their process groups only.
	Reaper *process.Reaper
	// Listening, if not nil, hears the URL of the store of this process.
	Listening func(url string)

	// Out is where progress is shown; nil shows none.
	Out io.Writer
	// Terminal says that Out can be redrawn.
	Terminal bool
	// Log, if not nil, is what Logger writes to, on the terminal that Out is on.
	Log *display.Log
	// Logger hears what the parts do; nil discards.
	Logger *slog.Logger
}

// Source is the text of a run file.
type Source struct {
	// Path is where it was read: relative paths in it start from its folder.
	Path string
	Text []byte
	// Seed, if there is one, was given instead of the file's.
	Seed agl.Null[uint64]
}

const (
	defaultConcurrency  = 4
	defaultUnresponsive = 10 * time.Minute
	defaultStoreListen  = "127.0.0.1:4747" // of the role algorithm
	loopbackListen      = "127.0.0.1:0"
	tokenVariable       = "AGL_TOKEN"
)

func (c Config) withDefaults() Config {
	if c.Role == "" {
		c.Role = execution.RoleBoth
	}
	if c.LookupEnv == nil {
		c.LookupEnv = func(string) (string, bool) { return "", false }
	}
	if c.Out == nil {
		c.Out = io.Discard
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	file := *c.File // the caller's own stays as it is
	if file.Agent.Concurrency == 0 {
		file.Agent.Concurrency = defaultConcurrency
	}
	if file.Store.Unresponsive == 0 {
		file.Store.Unresponsive = defaultUnresponsive
	}
	if c.StoreURL != "" {
		file.Store.URL, file.Store.Database = c.StoreURL, ""
	}
	c.File = &file
	return c
}

func (c Config) validate() error {
	f := c.File
	learns := 0
	for _, given := range []bool{f.Algorithm.GRPO != nil, f.Algorithm.SFT != nil, f.Algorithm.APO != nil, f.Algorithm.Baseline != nil} {
		if given {
			learns++
		}
	}
	switch {
	case learns != 1:
		return agl.Errorf(agl.CodeInvalid, "algorithm: got %d of them, must be one of grpo, sft, apo and baseline", learns)
	case c.Role != execution.RoleRunner && f.Output == "":
		return agl.Errorf(agl.CodeInvalid, "output: none given, a run needs a folder of its own")
	case c.Role == execution.RoleRunner && f.Store.URL == "" && f.Store.Listen == "":
		return agl.Errorf(agl.CodeInvalid, "store: neither url nor listen is given, the role runner needs a store to take rollouts from")
	case (f.Algorithm.GRPO != nil || f.Algorithm.SFT != nil) && (f.Engine == nil || f.Engine.Policy == nil && f.Engine.Tinker == nil):
		return agl.Errorf(agl.CodeInvalid, "engine: none given, %s needs one whose weights it trains", c.algorithmName())
	case f.Data.Train == nil && c.Role != execution.RoleRunner:
		return agl.Errorf(agl.CodeInvalid, "data.train: none given, the algorithm needs tasks")
	}
	return nil
}

// secret resolves env:NAME; what is not of that form is the secret itself. field
// names it in the error.
func (c Config) secret(field, value string) (string, error) { return secret(c.LookupEnv, field, value) }

func secret(lookupEnv func(name string) (string, bool), field, value string) (string, error) {
	name, isEnv := strings.CutPrefix(value, "env:")
	if !isEnv {
		return value, nil
	}
	found, ok := lookupEnv(name)
	if !ok || found == "" {
		return "", agl.Errorf(agl.CodeInvalid, "%s: the environment variable %s is not set", field, name)
	}
	return found, nil
}

// storeToken is the bearer token of the store; empty is none.
func (c Config) storeToken() (string, error) {
	if c.File.Store.Token != "" {
		return c.secret("store.token", c.File.Store.Token)
	}
	if token, ok := c.LookupEnv(tokenVariable); ok && token != "" {
		return token, nil
	}
	_, token := rest.SplitURL(c.File.Store.URL)
	return token, nil
}

// storeURL is where the store of another process is found, without its token.
func (c Config) storeURL() string {
	if c.File.Store.URL == "" {
		return "http://" + c.File.Store.Listen
	}
	public, _ := rest.SplitURL(c.File.Store.URL)
	return public
}
