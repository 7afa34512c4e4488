package process

import (
	"cmp"
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/bounds"
)

// Keepalive says whether a process serves one attempt or many.
type Keepalive string

const (
	// KeepaliveNone starts a process for each attempt.
	KeepaliveNone Keepalive = ""
	// KeepaliveStdio keeps processes: each gets a task as one line of JSON on its standard input and answers with one line
	// on its standard output; see [StdioTask].
	KeepaliveStdio Keepalive = "stdio"
)

// Config configures an [Agent]. Command is required; the zero value of every other field is usable.
type Config struct {
	// Command is the program and its arguments.
	Command []string
	// Environ is the environment that the program starts from, usually os.Environ(); the attempt's own variables are added.
	Environ []string
	// Env are more variables, NAME=VALUE. They override Environ; those of the attempt override Env.
	Env []string
	// User runs the program as another user, who cannot read this process's memory and files; nil is this process's
	// user. It requires the privilege to change users, such as root's. Only on Unix.
	User *User
	// Dir is the working directory. Empty is a new folder for each attempt, or with Keepalive for each process, which is removed afterwards.
	Dir string
	// TempDir is where the folders of attempts and of kept processes are made; empty is os.TempDir().
	TempDir string
	// Keep keeps the folders of attempts and of kept processes.
	Keep bool

	// StoreURL is the store's URL for the program. Without it the program gets no OpenTelemetry variables either.
	StoreURL string
	// SpanToken makes the token with which the program may store the attempt's spans, and nothing else; none is sent if it is nil or makes an empty one.
	SpanToken func(ctx context.Context, rolloutID, attemptID string) (string, error)
	// AllowEnv names variables of Environ that the resources of a rollout may name as the model's API key, env:NAME.
	// Whoever writes resources decides where that key is sent, so any other name fails the attempt, and so does
	// AGL_*.
	AllowEnv []string
	// Withhold names variables of Environ that the program does not get, in addition to those for agl's own programs.
	Withhold []string

	// Timeout bounds one attempt, in addition to the rollout's own limit; 0 means no bound.
	Timeout time.Duration
	// GracePeriod is the time between SIGTERM and SIGKILL; 0 is 5 s. The grace period
	// of the runner should be longer, or it leaves the agent behind.
	GracePeriod time.Duration
	// Hurry, once closed, ends all grace periods, those in progress and later ones; nil is never closed.
	Hurry <-chan struct{}
	// OutputBytes bounds what is kept of each output stream; 0 is 1 MiB.
	OutputBytes int
	// MemoryBytes bounds the address space of each process; 0 is no limit. It needs a Unix shell.
	MemoryBytes int64

	// Keepalive keeps processes for many attempts.
	Keepalive Keepalive
	// MaxIdle is the number of idle processes that are kept; 0 is 64.
	MaxIdle int

	// Reaper ends processes that leave their process group; nil ends groups only.
	Reaper *Reaper
	// Logger logs lost output and folders; nil discards.
	Logger *slog.Logger
}

// User is a user of the system.
type User struct{ UID, GID uint32 }

// DefaultGracePeriod is the grace period of a Config without one.
const DefaultGracePeriod = 5 * time.Second

func (c Config) withDefaults() Config {
	c.TempDir = cmp.Or(c.TempDir, os.TempDir())
	c.GracePeriod = cmp.Or(c.GracePeriod, DefaultGracePeriod)
	c.OutputBytes = cmp.Or(c.OutputBytes, 1<<20)
	c.MaxIdle = cmp.Or(c.MaxIdle, 64)
	c.Logger = cmp.Or(c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func (c *Config) validate() error {
	if len(c.Command) == 0 || c.Command[0] == "" {
		return agl.Errorf(agl.CodeInvalid, "process: Command: empty, must name the agent's program")
	}
	for _, argument := range c.Command {
		if strings.ContainsRune(argument, 0) {
			return agl.Errorf(agl.CodeInvalid, "process: Command: got %.40q, must have no NUL", argument)
		}
	}
	if err := bounds.NotNegative("process: ",
		bounds.Number("Timeout", c.Timeout), bounds.Number("GracePeriod", c.GracePeriod),
		bounds.Number("OutputBytes", c.OutputBytes), bounds.Number("MemoryBytes", c.MemoryBytes),
		bounds.Number("MaxIdle", c.MaxIdle),
	); err != nil {
		return err
	}
	if c.Keepalive != KeepaliveNone && c.Keepalive != KeepaliveStdio {
		return agl.Errorf(agl.CodeInvalid, "process: Keepalive: got %q, must be empty or %q", c.Keepalive, KeepaliveStdio)
	}
	for _, v := range c.Env {
		if name, _, ok := strings.Cut(v, "="); !ok || name == "" {
			return agl.Errorf(agl.CodeInvalid, "process: Env: got %.40q, must be NAME=VALUE", v)
		}
		if strings.ContainsRune(v, 0) {
			return agl.Errorf(agl.CodeInvalid, "process: Env: got %.40q, must have no NUL", v)
		}
	}
	if c.User != nil && !canChangeUser {
		return agl.Errorf(agl.CodeInvalid, "process: User: got user %d, must be nil on this system", c.User.UID)
	}
	if c.Dir != "" {
		info, err := os.Stat(c.Dir)
		switch {
		case err != nil:
			return agl.Errorf(agl.CodeInvalid, "process: Dir: %w", err)
		case !info.IsDir():
			return agl.Errorf(agl.CodeInvalid, "process: Dir: %s is not a folder", c.Dir)
		}
	}
	return nil
}
