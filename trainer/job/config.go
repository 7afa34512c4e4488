package job

import (
	"cmp"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/execution"
	"github.com/agl-go/agl/rest/client"
	"github.com/agl-go/agl/runner/process"
	"github.com/agl-go/agl/trainer/display"
	"github.com/agl-go/agl/trainer/keys"
	"github.com/agl-go/agl/trainer/output"
	"github.com/agl-go/agl/trainer/runfile"
)

// Config says what to run, and which part of it in this process.
type Config struct {
	// File is what to run. Required.
	File *runfile.File
	// Source is the text of File, which is copied to the output folder. With Resume it
	// is nil, or that of a corrected run file.
	Source output.Source
	// Resume continues the run in File.Output instead of beginning one there.
	Resume bool
	// Overwrite replaces the run in File.Output; Numbered begins beside it instead. See
	// [output.Params].
	Overwrite, Numbered bool

	// Agent does the tasks in this process, instead of the program of File; nil runs the
	// program. See [runfile.Options] for files without one.
	Agent agl.Agent

	// From is the folder of a run whose trained weights [DryRun] uses; empty means the
	// first weights.
	From string
	// agents are the weights in From of the agents after the first, by name.
	agents map[string]string

	// Role is this process's part; empty means both. The role runner has no output
	// folder: it runs agents on the rollouts of a store.
	Role execution.Role
	// StoreURL is a store server elsewhere; it overrides the file.
	StoreURL string

	// TLS says whom the run's clients of a store, an engine, a tracker and models trust, and with
	// which certificate they authenticate. Nil trusts the CAs of the system.
	TLS *tls.Config

	// Program is what a person types to run agl, in the commands that results name;
	// empty is agl.
	Program string
	// Version of the program, for the record.
	Version string
	// Environ is the environment of agents, usually os.Environ().
	Environ []string
	// LookupEnv resolves secrets of the form env:NAME; nil resolves none.
	LookupEnv func(name string) (value string, ok bool)
	// Reaper ends the processes that agents leave behind; nil ends only their process
	// groups.
	Reaper *process.Reaper
	// Listening is called with the URL of the store of this process; nil does nothing.
	Listening func(url string)

	// Out is where progress is shown; nil shows none.
	Out io.Writer
	// Terminal says that Out can be redrawn.
	Terminal bool
	// Log is the writer of Logger, if that is on the same terminal as Out; nil
	// otherwise.
	Log *display.Log
	// Logger gets what the parts do; nil discards it.
	Logger *slog.Logger
}

const (
	defaultConcurrency  = 4
	defaultTimeout      = 10 * time.Minute // of an attempt
	defaultUnresponsive = 10 * time.Minute
	defaultStoreListen  = "127.0.0.1:4747" // of the role algorithm
	loopbackListen      = "127.0.0.1:0"
)

func (c Config) withDefaults() Config {
	c.Role = cmp.Or(c.Role, execution.RoleBoth)
	if c.LookupEnv == nil {
		c.LookupEnv = func(string) (string, bool) { return "", false }
	}
	c.Out = cmp.Or(c.Out, io.Discard)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	file := *c.File // the caller's file does not change
	file.Agent.Concurrency = cmp.Or(file.Agent.Concurrency, defaultConcurrency)
	if !file.Agent.Rollout.TimeoutSeconds.Valid {
		file.Agent.Rollout.TimeoutSeconds = agl.Some(defaultTimeout.Seconds())
	}
	file.Store.Unresponsive = cmp.Or(file.Store.Unresponsive, defaultUnresponsive)
	if c.StoreURL != "" {
		file.Store.URL, file.Store.Database = c.StoreURL, ""
	}
	c.File = &file
	return c
}

// hasAgent reports whether this process can do tasks.
func (c Config) hasAgent() bool { return c.Agent != nil || len(c.File.Agent.Process.Command) > 0 }

func (c Config) validate() error {
	f := c.File
	switch {
	case f.Algorithm == nil:
		return agl.Errorf(agl.CodeInvalid, "algorithm: none given")
	case c.Role != execution.RoleRunner && f.Output == "":
		return agl.Errorf(agl.CodeInvalid, "output: none given, a run needs a folder of its own")
	case c.Role == execution.RoleRunner && f.Store.URL == "" && f.Store.Listen == "":
		return agl.Errorf(agl.CodeInvalid, "store: neither url nor listen is given, the role runner needs a store to take rollouts from: give --store or AGL_STORE_URL")
	case c.Role == execution.RoleRunner && f.Store.URL == "" && !dialable(f.Store.Listen):
		return agl.Errorf(agl.CodeInvalid, "store.listen: got %s, at which no runner can reach the store: give its URL, such as --store http://trainer:4747", f.Store.Listen)
	case f.Algorithm.Needs().Losses != nil && !f.Engine.Trains():
		return agl.Errorf(agl.CodeInvalid, "engine: none given, %s needs one whose weights it trains", f.Algorithm.Name())
	case f.Algorithm.Needs().Divergence && f.Store.URL != "" && c.Role != execution.RoleRunner:
		return agl.Errorf(agl.CodeInvalid, "algorithm.%s.release.guards: got kl, which needs the engine of this run, but the store at store.url decides about releases and has none: leave out store.url, or kl", f.Algorithm.Name())
	case f.Data.Train == nil && !f.Algorithm.Needs().NoTasks && c.Role != execution.RoleRunner:
		return agl.Errorf(agl.CodeInvalid, "data.train: none given, the algorithm needs tasks")
	}
	return nil
}

// storeToken is the bearer token of the store; empty is none.
func (c Config) storeToken() (string, error) {
	token, err := keys.StoreToken(c.LookupEnv, "store.token", c.File.Store.Token)
	if token == "" && err == nil {
		_, token = client.SplitURL(c.File.Store.URL)
	}
	return token, err
}

// explainToken says where the token comes from that a store server has refused.
func (c Config) explainToken(err error) error {
	if c.File.Store.URL == "" || agl.ErrorCode(err) != agl.CodeUnauthorized {
		return err
	}
	return fmt.Errorf("store %s: %w\nits token is store.token of the run file or, if that is left out, AGL_TOKEN or --token-file", c.storeURL(), err)
}

// storeURL is the URL of the store of another process, without its token.
func (c Config) storeURL() string {
	if c.File.Store.URL == "" {
		scheme := "http://"
		if c.File.Store.TLS.Cert != "" {
			scheme = "https://"
		}
		return scheme + c.File.Store.Listen
	}
	public, _ := client.SplitURL(c.File.Store.URL)
	return public
}

// trainedModel is the name of the engine's model for agents, of several the first that is trained.
func (c Config) trainedModel() string {
	for _, role := range c.File.Roles {
		if !role.Frozen {
			return role.ModelName
		}
	}
	if c.File.Proxy != nil {
		return c.File.Proxy.Model
	}
	return ""
}

// untrained is a warning about a model that cannot have learned anything yet; empty if
// there is none.
func (c Config) untrained() string {
	if e := c.File.Engine; e == nil || e.Policy == nil || e.Policy.WarmStart != nil || c.File.Algorithm.Needs().Losses == nil {
		return ""
	}
	return "the model begins with random weights, as engine.policy has no warm_start: its first replies are noise, and reinforcement learning has little to make more likely"
}

// transport sends single requests.
func (c Config) transport() http.RoundTripper {
	return &http.Transport{Proxy: http.ProxyFromEnvironment, TLSClientConfig: c.TLS}
}
