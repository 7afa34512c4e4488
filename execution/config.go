package execution

import (
	"cmp"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/internal/httpserver"
	"github.com/agl-go/agl/internal/secret"
)

// Role says which parts of a run a process runs.
type Role string

// The roles.
const (
	RoleBoth      Role = "both" // the default: this process starts everything
	RoleAlgorithm Role = "algorithm"
	RoleRunner    Role = "runner"
)

// The environment variables that [ConfigFromEnv] reads.
const (
	EnvRole         = "AGL_CURRENT_ROLE"   // both, algorithm or runner
	EnvServerHost   = "AGL_SERVER_HOST"    // where the store server listens or is found
	EnvServerPort   = "AGL_SERVER_PORT"    // its port, 0–65535
	EnvManagedStore = "AGL_MANAGED_STORE"  // 1, true, yes, on or 0, false, no, off
	EnvStoreURL     = "AGL_STORE_URL"      // an external store; overrides host and port
	EnvToken        = "AGL_TOKEN"          // of the store
	EnvProcess      = "AGL_RUNNER_PROCESS" // set for runner processes: the number of this one
	EnvLifeline     = "AGL_LIFELINE_FD"    // set for child processes: a pipe that closes when the parent ends
)

// Config says what one process of a client-server run does, usually from the role variables of the environment. Main
// packages get it from [ConfigFromEnv], so that a child process of the same program takes its own role.
type Config struct {
	// Role is required. A program that does not read it from the environment
	// cannot start runner processes of itself.
	Role Role
	// Host and Port are the address at which a managed store listens, and that of an external store without a
	// StoreURL. Defaults: localhost, and 4747 unless AnyPort is set.
	Host string
	Port int
	// AnyPort makes a managed store take a free port when Port is 0.
	AnyPort bool
	// ExternalStore says that the store server runs elsewhere. Otherwise the
	// store is managed: the process of role both or algorithm serves it.
	ExternalStore bool
	// StoreURL is the base URL of an external store. Default: http://Host:Port.
	StoreURL string
	// Token is the store's bearer token; empty is none.
	Token string

	// Process is the number of this runner process among those of its parent; null if no parent started it.
	Process agl.Null[int]
	// LifelineFD is the descriptor of a pipe that the parent holds open: this process stops when the pipe closes. 0
	// means none.
	LifelineFD int
}

const (
	defaultHost = "localhost"
	defaultPort = 4747
)

// ConfigFromEnv reads the role variables with getenv, usually os.Getenv. An empty variable counts as not set. A wrong
// value is agl.ErrInvalid; the error names the variable, the value and what is allowed.
func ConfigFromEnv(getenv func(string) string) (Config, error) {
	c := Config{Role: RoleBoth, Host: defaultHost, Port: defaultPort, Token: getenv(EnvToken)}
	if v := getenv(EnvRole); v != "" {
		c.Role = Role(strings.ToLower(v))
		if !slices.Contains(roles(), c.Role) {
			return Config{}, envError(EnvRole, v, "must be both, algorithm or runner")
		}
	}
	if v := getenv(EnvServerHost); v != "" {
		c.Host = v
	}
	if v := getenv(EnvServerPort); v != "" {
		port, err := strconv.ParseUint(v, 10, 16)
		if err != nil {
			return Config{}, envError(EnvServerPort, v, "must be a port number, 0 to 65535 (0 takes a free one)")
		}
		c.Port, c.AnyPort = int(port), port == 0
	}
	managed := getenv(EnvManagedStore)
	if managed != "" {
		on, ok := parseSwitch(managed)
		if !ok {
			return Config{}, envError(EnvManagedStore, managed, "must be 1, true, yes or on, or 0, false, no or off")
		}
		c.ExternalStore = !on
	}
	if v := getenv(EnvStoreURL); v != "" {
		if err := checkStoreURL(v); err != nil {
			return Config{}, envError(EnvStoreURL, secret.RedactURL(v), err.Error())
		}
		if managed != "" && !c.ExternalStore {
			return Config{}, envError(EnvManagedStore, managed,
				"must be off when "+EnvStoreURL+" names an external store")
		}
		c.StoreURL, c.ExternalStore = v, true
	}
	if v := getenv(EnvProcess); v != "" {
		n, err := strconv.ParseUint(v, 10, 31)
		if err != nil {
			return Config{}, envError(EnvProcess, v, "must be a whole number from 0; it is set by the parent process")
		}
		c.Process = agl.Some(int(n))
	}
	if v := getenv(EnvLifeline); v != "" {
		fd, err := strconv.ParseUint(v, 10, 31)
		if err != nil || fd < 3 {
			return Config{}, envError(EnvLifeline, v, "must be a file descriptor from 3; it is set by the parent process")
		}
		c.LifelineFD = int(fd)
	}
	return c, nil
}

func roles() []Role { return []Role{RoleBoth, RoleAlgorithm, RoleRunner} }

func envError(name, value, allowed string) error {
	return agl.Errorf(agl.CodeInvalid, "%s: got %q, %s", name, value, allowed)
}

// parseSwitch reads the spellings of a boolean that the Python package accepts.
func parseSwitch(v string) (on, ok bool) {
	switch strings.ToLower(v) {
	case "1", "true", "yes", "on":
		return true, true
	case "0", "false", "no", "off":
		return false, true
	default:
		return false, false
	}
}

func checkStoreURL(v string) error {
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return fmt.Errorf("must be an http or https URL such as http://localhost:%d", defaultPort)
	}
	_, err = secret.ParseURL(v)
	return err
}

func (c Config) withDefaults() Config {
	c.Host = cmp.Or(c.Host, defaultHost)
	if c.Port == 0 && !c.AnyPort {
		c.Port = defaultPort
	}
	if c.StoreURL != "" {
		c.ExternalStore = true
	}
	return c
}

func (c Config) validate() error {
	switch {
	case c.Role == "":
		return agl.Errorf(agl.CodeInvalid,
			"execution: no role given; start from execution.ConfigFromEnv(os.Getenv), so that runner processes learn theirs")
	case !slices.Contains(roles(), c.Role):
		return agl.Errorf(agl.CodeInvalid, "execution: role: got %q, must be both, algorithm or runner", c.Role)
	case c.Port < 0 || c.Port > 65535:
		return agl.Errorf(agl.CodeInvalid, "execution: port: got %d, must be 0 to 65535", c.Port)
	case c.StoreURL != "":
		if err := checkStoreURL(c.StoreURL); err != nil {
			return agl.Errorf(agl.CodeInvalid, "execution: store URL: got %q, %w", secret.RedactURL(c.StoreURL), err)
		}
	case c.Port == 0 && (c.ExternalStore || c.Role == RoleRunner):
		return agl.Errorf(agl.CodeInvalid, "execution: port: got 0, must be that of the store's server, which this process does not start (%s)", EnvServerPort)
	case !c.ExternalStore && c.Role != RoleRunner && c.Token == "" && !httpserver.Loopback(c.Host):
		return agl.Errorf(agl.CodeInvalid,
			"execution: host: got %q, which other machines can reach: set a token (%s) or listen on localhost", c.Host, EnvToken)
	}
	return nil
}

// storeURL returns the URL of a store that this process does not serve.
func (c Config) storeURL() string {
	if c.StoreURL != "" {
		return c.StoreURL
	}
	return "http://" + net.JoinHostPort(c.Host, strconv.Itoa(c.Port))
}

// listenAddress returns the address at which a managed store listens.
func (c Config) listenAddress() string { return net.JoinHostPort(c.Host, strconv.Itoa(c.Port)) }
