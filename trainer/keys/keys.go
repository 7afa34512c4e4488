// Package keys declares values that several parts of a run file share.
//
// It must not know which part a value belongs to.
package keys

import (
	"net/url"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/agl-go/agl"
	"github.com/agl-go/agl/algorithm"
	"github.com/agl-go/agl/internal/rawjson"
	"github.com/agl-go/agl/internal/secret"
	"github.com/agl-go/agl/internal/yamlfile"
	"github.com/agl-go/agl/store"
)

// Count declares an integer of at least 1.
func Count(to *int) yamlfile.Value { return yamlfile.Integer(to, yamlfile.Min(1)) }

// Grace declares the time between SIGTERM and SIGKILL. A time of 0 becomes the shortest one, since configurations take their default for 0.
func Grace(to *time.Duration) yamlfile.Value {
	return yamlfile.Via(yamlfile.DurationOrZero, func(d time.Duration) { *to = max(d, 1) })
}

// Positive declares a number above 0.
func Positive(to *float64) yamlfile.Value { return yamlfile.Number(to, yamlfile.Above(0)) }

// Rate declares the two keys of a learning rate; otherwise says what a file without
// either gets. [OneRate] checks that there is at most one.
func Rate(to *algorithm.Schedule, otherwise string) []yamlfile.Field {
	key := yamlfile.Key
	constant := func(rate float64) { *to = algorithm.Schedule{Peak: rate, Floor: rate} }
	return []yamlfile.Field{
		key("learning_rate", "A constant learning rate. "+otherwise, yamlfile.Via(Positive, constant)),
		key("schedule", "A learning rate that rises, stays and falls, instead of learning_rate.", yamlfile.Mapping(
			key("peak", "The highest rate.", Positive(&to.Peak)).Required(),
			key("warmup", "Steps over which it rises linearly from 0.", yamlfile.Integer(&to.Warmup)).Default(0),
			key("hold", "Steps for which it then stays.", yamlfile.Integer(&to.Hold)).Default(0),
			key("floor", "The rate to which it falls: that of the step after the last.", yamlfile.Number(&to.Floor)).Default(0),
			key("decay", "The shape of the fall: a half cosine, or a line.", yamlfile.Words(&to.Decay, algorithm.Decays()...)).Default(string(algorithm.Cosine)),
		).Check(func(s *yamlfile.Scope) {
			if s.Clean() {
				s.FailAt("", to.Validate())
			}
		})),
	}
}

// OneRate refuses both keys of [Rate] together.
func OneRate(s *yamlfile.Scope) {
	if s.Given("learning_rate") && s.Given("schedule") {
		s.Failf("schedule", "given together with learning_rate, must be one of them")
	}
}

// Form declares the member of tasks that names their form, and makes the function
// that reads it: a text as it is, any other value as JSON.
func Form(to *func(task jsontext.Value) string) yamlfile.Value {
	return yamlfile.Via(yamlfile.Text, func(name string) {
		*to = func(task jsontext.Value) string {
			value, ok := rawjson.Get(task, name)
			if !ok {
				return ""
			}
			var text string
			if json.Unmarshal(value, &text) == nil {
				return text
			}
			return string(value)
		}
	})
}

// Source is where rollouts are stored: in a database or at a store server.
type Source struct {
	// Database is that of [Database].
	Database string
	// URL is that of a store server, instead of a Database.
	URL string
	// Token is env:NAME; empty means the environment's AGL_TOKEN.
	Token string
}

// DatabaseFile is the database of a run, in its output folder.
const DatabaseFile = "agl.db"

// Database declares the name of a database, as `agl store --db` takes it. A relative path starts from dir.
func Database(dir string, to *string) yamlfile.Value {
	return yamlfile.Text(to).Check(func(s *yamlfile.Scope) {
		dsn, err := store.ParseDSN(*to)
		switch {
		case err != nil:
			s.FailAt("", err)
		case dsn.Kind == store.Postgres && hasPassword(*to):
			s.Failf("", "it contains a password, which does not belong in this file; use PGPASSWORD or ~/.pgpass")
		case dsn.Kind == store.SQLite && !filepath.IsAbs(dsn.Path):
			*to = strings.TrimSuffix(*to, dsn.Path) + filepath.Join(dir, dsn.Path)
		}
	})
}

// hasPassword looks for a password in the URL of a database and its parameters.
func hasPassword(database string) bool {
	u, err := url.Parse(database)
	if err != nil {
		return false
	}
	_, has := u.User.Password()
	for name := range u.Query() {
		has = has || strings.Contains(strings.ToLower(name), "pass")
	}
	return has
}

// Secret resolves env:NAME by lookupEnv. Any other value is the secret itself. key names it in the error.
func Secret(lookupEnv func(name string) (string, bool), key, value string) (string, error) {
	name, isEnv := strings.CutPrefix(value, "env:")
	if !isEnv {
		return value, nil
	}
	found, ok := lookupEnv(name)
	if !ok || found == "" {
		return "", agl.Errorf(agl.CodeInvalid, "%s: the environment variable %s is not set", key, name)
	}
	return found, secret.Check(key+": the environment variable "+name, found)
}

// tokenVariable has the token of a store.
const tokenVariable = "AGL_TOKEN"

// StoreToken resolves the token of a store. Without one it is the environment's AGL_TOKEN, if that is set.
func StoreToken(lookupEnv func(name string) (string, bool), key, value string) (string, error) {
	if value != "" {
		return Secret(lookupEnv, key, value)
	}
	token, _ := lookupEnv(tokenVariable)
	return token, secret.Check(tokenVariable, token)
}
